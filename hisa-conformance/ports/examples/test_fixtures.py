"""Every golden fixture as a test of its own; replace STAGES with your functions."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from hisa_port import Params, Refused, call, read_safetensors
from numpy_port import STAGES

ROOT = pathlib.Path(__file__).resolve().parents[3]
FIXTURES = pathlib.Path(os.environ.get("HISA_FIXTURES", ROOT / "fixtures"))
CASES = json.loads((FIXTURES / "manifest.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_fixture(case):
    if "file" not in case or case["op"] not in STAGES or case["result"] == "acceptable":
        pytest.skip("no tensors, no function, or no one right answer")
    tensors, _ = read_safetensors(FIXTURES / case["file"])
    inputs, params = {name: tensors[name] for name in case["inputs"]}, Params(case["params"])
    if case["result"] == "rejected":
        with pytest.raises(Refused):
            call(STAGES[case["op"]], case["op"], inputs, params)
        return
    made = call(STAGES[case["op"]], case["op"], inputs, params, fill="ones")
    for name in case["outputs"]:
        np.testing.assert_array_equal(made[name], tensors[name], err_msg=name)
