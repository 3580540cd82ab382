"""The numpy port against `hisa eval --all`, through files, bit for bit.

The environment variable HISA names the binary.
"""

import subprocess

import numpy as np
import pytest

import hisa_port
import numpy_port
from support import HISA, problem

SHAPES = [
    dict(),
    dict(m=0),
    dict(n=0),
    dict(n=1, b=4, blocks=1),
    dict(m=1, h=1, d=1, b=1, blocks=30, topk=40),
    dict(m=17, n=64, b=8, blocks=2, topk=3),
    dict(m=9, n=61, h=8, d=32, b=16, blocks=1, topk=16),
    dict(m=12, n=300, h=2, d=64, b=32, blocks=5, topk=64),
    dict(m=3, n=40, b=64, blocks=2, topk=50),
    dict(m=6, n=1000, h=4, d=128, b=8, blocks=20, topk=9),
]
VALUES = ["plain", "ties", "wide", "foreign", "zero"]
STAGES = ("block_pool", "block_scores", "block_mask", "block_topk", "token_scores", "token_topk",
          "index_map")  # fmt: skip


def evaluate(folder, tensors, params, indexer, *flags):
    source, target = folder / "in.safetensors", folder / "out.safetensors"
    metadata = {name: str(value).lower() for name, value in params.items()}
    hisa_port.write_safetensors(source, tensors, {**metadata, "indexer": indexer})
    command = [HISA, "eval", "--all", "--input", source, "--out", target, "--indexer", indexer]
    done = subprocess.run([*command, *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return hisa_port.read_safetensors(target)[0]


def equal(made, wanted, name):
    assert made.dtype == wanted.dtype and made.shape == wanted.shape, name
    same = made.view(np.uint8) == wanted.view(np.uint8) if made.size else np.array(True)
    assert same.all(), (name, made, wanted)


def name_of(shape):
    return "-".join(f"{letter}{size}" for letter, size in shape.items()) or "default"


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
def test_stages_and_indexers(tmp_path, shape, values):
    rng = np.random.default_rng([SHAPES.index(shape), VALUES.index(values)])
    tensors, params = problem(rng, **shape, values=values)
    params = hisa_port.Params(params)
    foreign = () if params.strict else ("--permissive",)
    wanted = evaluate(tmp_path, tensors, params, "hisa", *foreign)
    known = {**tensors, **wanted}
    for stage in STAGES:
        for name, tensor in numpy_port.STAGES[stage](known, params, {}).items():
            equal(tensor, wanted[name], name)
    equal(numpy_port.hisa(tensors, params, {})["indices"], wanted["indices"], "indices")
    for pieces in ([len(tensors["k"])], [9, 3, 11, len(tensors["k"])]):
        pieces = [min(end, len(tensors["k"])) for end in pieces]
        given = hisa_port.Params(params, pieces=pieces)
        for name, tensor in numpy_port.append(tensors, given, {}).items():
            equal(tensor, wanted[name], name)
    for indexer in ("dsa", "block_sparse"):
        wanted = evaluate(tmp_path, tensors, params, indexer.replace("_", "-"), *foreign)
        for name, tensor in numpy_port.STAGES[indexer](tensors, params, {}).items():
            equal(tensor, wanted[name], name)


@pytest.mark.parametrize("values", ["plain", "wide", "zero", "foreign"])
def test_quantize(tmp_path, values):
    rng = np.random.default_rng(VALUES.index(values))
    tensors, params = problem(rng)
    x = rng.normal(size=(40, 33)).astype(np.float32)
    if values == "wide":
        x = np.ldexp(x, rng.integers(-140, 120, (40, 1))).astype(np.float32)
    if values == "zero":
        x[rng.random(x.shape) < 0.9] = -0.0
    if values == "foreign":
        x[rng.random(x.shape) < 0.02] = np.inf
        x[rng.random(x.shape) < 0.01] = -np.nan
    params["strict"] = values != "foreign"
    foreign = () if params["strict"] else ("--permissive",)
    wanted = evaluate(tmp_path, {**tensors, "x": x}, params, "hisa", *foreign)
    made = numpy_port.quantize({"x": x}, hisa_port.Params(params), {})
    for name, tensor in made.items():
        equal(tensor, wanted[name], name)


def test_tiles_change_nothing(tmp_path, monkeypatch):
    """Rows, keys and blocks in tiles of one give what they give at once."""
    rng = np.random.default_rng(9)
    tensors, params = problem(rng, m=12, n=50, topk=10)
    params = hisa_port.Params(params)
    stages = ("block_pool", "hisa", "dsa", "block_sparse")
    whole = [numpy_port.STAGES[stage](tensors, params, {}) for stage in stages]
    monkeypatch.setattr(numpy_port, "KEYS_MAX", 1)
    monkeypatch.setattr(numpy_port.numpy_scores, "ELEMENTS_MAX", 1)
    monkeypatch.setattr("numpy_pooling.ELEMENTS_MAX", 1)
    for stage, wanted in zip(stages, whole):
        for name, tensor in numpy_port.STAGES[stage](tensors, params, {}).items():
            equal(tensor, wanted[name], name)
