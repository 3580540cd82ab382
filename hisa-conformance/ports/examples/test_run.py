"""`hisa run` on a port, a test per stage; HISA names the binary, HISA_PORT the port's command."""

import os
import pathlib
import subprocess
import sys

import pytest

PORTS = pathlib.Path(__file__).resolve().parents[1]
HISA = os.environ.get("HISA", "hisa")
PORT = os.environ.get("HISA_PORT", f"{sys.executable} {PORTS / 'numpy_port.py'}")
STAGES = "windows quantize block_pool block_scores block_mask block_topk token_scores token_topk"
STAGES += " index_map append hisa dsa block_sparse"


@pytest.mark.parametrize("stage", STAGES.split())
def test_stage(stage):
    command = [HISA, "run", "--port", PORT, "--stage", stage, "--cases", "500"]
    done = subprocess.run([*command, "--no-self-test", "--no-save"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
