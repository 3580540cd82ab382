"""The examples of docs/SPEC.md, as calls of a port's stage functions."""

import json
import re

import numpy as np

from support import ROOT

DEFAULTS = {"block_size": 128, "block_topk": 64, "topk_tokens": 2048, "rank": "bf16"}
CODES = ("q", "k", "pooled_k", "codes")
IDS = ("ks", "ke", "block_ids", "slots", "indices")


def read(stages):
    """The examples of these stages."""
    text = (ROOT / "docs" / "SPEC.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```json example\n(.*?)```", text, re.S)
    return [e for e in map(json.loads, blocks) if e["stage"] in stages]


def tensor(name, values):
    """A tensor of an example; empty ones have no known width."""
    if name in CODES:
        return _nested(values, lambda code: int(code, 16), np.uint8)
    if name in IDS:
        return np.array(values, np.int32)
    return _nested(values, _bits, np.uint32).view(np.float32)


def _nested(values, of, dtype):
    flat = np.array(values, dtype=object)
    return np.array([of(v) for v in flat.ravel()], dtype).reshape(flat.shape)


def _bits(value):
    if isinstance(value, str) and value.startswith("0x"):
        return int(value, 16)
    if value == "nan":
        return 0x7FC00000
    return int(np.float32(value).view(np.uint32))


def inputs(example):
    """The tensors of an example, windows as `ks` and `ke`."""
    keys = {"x", "q", "weights", "k", "k_scale", "pooled_k", "pooled_scale", "block_scores"}
    keys |= {"block_mask", "token_scores", "block_ids", "slots", "ks", "ke"}
    made = {name: tensor(name, example[name]) for name in keys & set(example)}
    if "cu_seqlens" in example:
        cu = example["cu_seqlens"]
        rows = [(s, s + i + 1) for s, e in zip(cu, cu[1:]) for i in range(e - s)]
        made["ks"], made["ke"] = np.array(rows, np.int32).reshape(-1, 2).T.copy()
    if "k" in made and made["k"].size == 0:
        made["k"] = made["k"].reshape(0, made["q"].shape[2])
    return made
