"""Places and helpers of the tests."""

import os
import pathlib
import sys

PORTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = PORTS.parents[1]
HISA = os.environ.get("HISA", str(ROOT / "target/release/hisa"))

sys.path.insert(0, str(PORTS))
