"""Every example of docs/SPEC.md, run by the numpy port, compared bit for bit."""

import json
import re

import numpy as np
import pytest

import hisa_port
import numpy_port
from support import ROOT

EXAMPLES = [
    json.loads(block)
    for block in re.findall(
        r"```json example\n(.*?)```", (ROOT / "docs/SPEC.md").read_text(), flags=re.DOTALL
    )
]
RANKS = {"q": 3, "k": 2, "pooled_k": 2}


def test_there_are_examples():
    assert len(EXAMPLES) >= 80


def bits(value):
    """A number of an example as the bits of its f32."""
    if isinstance(value, list):
        return [bits(entry) for entry in value]
    if isinstance(value, str):
        named = {"inf": 0x7F800000, "-inf": 0xFF800000, "nan": 0x7FC00000}
        return named[value] if value in named else int(value, 16)
    return int(np.float32(value).view(np.uint32))


def floats(values):
    return np.array(bits(values), np.uint32).view(np.float32)


def code_array(values, rank):
    def number(value):
        return [number(v) for v in value] if isinstance(value, list) else int(value, 16)

    if not values:
        return np.zeros((0,) + (1,) * (rank - 1), np.uint8)
    return np.array(number(values), np.uint8)


def tensors_of(example):
    made = {}
    for name in ("q", "k", "pooled_k"):
        if name in example:
            made[name] = code_array(example[name], RANKS[name])
    for name in ("x", "k_scale", "pooled_scale", "weights", "block_scores", "block_mask",
                 "token_scores"):  # fmt: skip
        if name in example:
            made[name] = floats(example[name])
    for name in ("ks", "ke", "block_ids", "slots"):
        if name in example:
            made[name] = np.array(example[name], np.int32)
    for name in ("cu_seqlens", "cu_seqlens_q", "cu_seqlens_k"):
        if name in example:
            made[name] = np.array(example[name], np.int64)
    return made


def run(example):
    """The outputs of an example's call, by name."""
    stage, inputs = example["stage"], tensors_of(example)
    params = hisa_port.Params(example.get("params", {}))
    if "n" in example:
        params["keys"] = example["n"]
    if stage == "decode":
        return {"values": hisa_port.e4m3_decode(code_array(example["codes"], 1))}
    if stage == "encode":
        return {"codes": hisa_port.e4m3_encode(inputs["x"], params.overflow)}
    if stage == "bf16":
        return {"bf16": hisa_port.bf16_round(inputs["x"])}
    if stage == "order":
        at = np.arange(len(inputs["x"]))
        place = numpy_port.places(inputs["x"][None], at, np.ones(len(at), bool))
        return {"order": numpy_port.best(place, len(at))[0]}
    if stage == "windows":
        return windows(inputs, params)
    if "cu_seqlens" in inputs:
        inputs.update(numpy_port.windows(inputs, params, {}))
    return numpy_port.STAGES[stage](inputs, params, {})


def windows(inputs, params):
    made = inputs if "ks" in inputs else numpy_port.windows(inputs, params, {})
    checked = numpy_port.windows_of(made, params.get("keys", 2**31 - 1), len(made["ks"]))
    if "block_size" in params:
        ends = numpy_port.block_windows(*checked, params.block_size)
        made = {**made, "block_windows": np.concatenate(ends, axis=1)}
    return made


def same(made, wanted, name):
    if name in ("codes", "pooled_k"):
        return np.array_equal(made, code_array(wanted, made.ndim))
    if made.dtype.kind == "i":
        return np.array_equal(made, np.array(wanted))
    return np.array_equal(made.view(np.uint32), np.array(bits(wanted), np.uint32))


@pytest.mark.parametrize("example", EXAMPLES, ids=[example["name"] for example in EXAMPLES])
def test_example(example):
    if example["stage"] == "incremental":
        return incremental(example)
    if "error" in example:
        with pytest.raises(hisa_port.Refused) as refused:
            run(example)
        assert example["error"] in str(refused.value)
        return
    made = run(example)
    seen = 0
    for name, wanted in example["expect"].items():
        if name in made:
            assert same(made[name], wanted, name), (name, made[name], wanted)
            seen += 1
    assert seen


def incremental(example):
    inputs = tensors_of(example)
    for split in example["splits"]:
        pieces = np.cumsum(split).tolist()
        params = hisa_port.Params(example["params"], pieces=pieces)
        made = numpy_port.append(inputs, params, {})
        for name, wanted in example["expect"].items():
            assert same(made[name], wanted, name), (split, name)
