"""`hisa run` on a port, a test per stage: name your port's command and the stages it offers.

HISA names the binary, PORT_COMMAND the command.
"""

import os
import pathlib
import shlex
import subprocess
import sys

import pytest

HISA = os.environ.get("HISA", "hisa")
NUMPY_PORT = pathlib.Path(__file__).resolve().parents[1] / "numpy_port.py"
PORT = os.environ.get("PORT_COMMAND", shlex.join([sys.executable, str(NUMPY_PORT)]))
STAGES = "windows quantize block_pool block_scores block_mask block_topk token_scores token_topk"
STAGES += " index_map append hisa dsa block_sparse"


@pytest.mark.parametrize("stage", STAGES.split())
def test_stage(stage):
    command = [HISA, "run", "--port", PORT, "--stage", stage, "--cases", "500"]
    done = subprocess.run([*command, "--no-self-test", "--no-save"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
