"""Makes the adapters importable, wherever pytest is started."""

import support  # noqa: F401
