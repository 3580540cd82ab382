"""torch_port.py against the examples of docs/SPEC.md, and against `hisa eval` bit by bit.

Needs torch; the second part needs the program `hisa` too: a path in HISA, or a build in target/.
"""

import fractions
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is missing: pip install torch")

import hisa_port  # noqa: E402
import spec_examples  # noqa: E402
import torch_device  # noqa: E402
import torch_port  # noqa: E402
from support import HISA, PORTS  # noqa: E402

DEVICE = os.environ.get("HISA_TORCH_DEVICE", "cpu")
PORT = torch_port.Port(*torch_device.load(DEVICE))
FUNCTIONS = PORT.functions()


def call(stage, inputs, **params):
    """One stage, as the worker loop calls it."""
    copies = {name: tensor.copy() for name, tensor in inputs.items()}
    made = FUNCTIONS[stage](copies, hisa_port.Params(params), {})
    for name, tensor in inputs.items():
        assert copies[name].tobytes() == tensor.tobytes(), f"{stage} wrote to {name}"
    return made


def assert_same(got, expected, what):
    """Equal bits, NaN payloads and the sign of zero left aside for floats (SPEC V.4, V.5)."""
    assert got.shape == expected.shape, what
    assert got.dtype == expected.dtype, what
    if got.dtype == np.float32:
        np.testing.assert_array_equal(got, expected, err_msg=what)
    else:
        assert (got == expected).all(), f"{what}: {got} is not {expected}"


# Examples

EXAMPLES = spec_examples.read(FUNCTIONS)


def test_every_stage_has_examples():
    missing = set(FUNCTIONS) - {example["stage"] for example in EXAMPLES} - {"append"}
    assert not missing
    assert set(FUNCTIONS) == set(hisa_port.OUTPUTS)


@pytest.mark.parametrize("example", EXAMPLES, ids=[e["name"] for e in EXAMPLES])
def test_example(example):
    stage = example["stage"]
    params = {**spec_examples.DEFAULTS, **example.get("params", {})}
    if stage == "quantize" and "dims" in params:
        pytest.skip("other groupings are no stage of the protocol")
    if stage in ("hisa", "dsa", "block_sparse") and "error" in example:
        pytest.skip("parameters are checked before a port is asked")
    inputs = spec_examples.inputs(example)
    if stage == "windows":
        offsets = {n: np.array(v) for n, v in example.items() if n.startswith("cu_")}
        inputs = offsets or inputs
        params["keys"] = example["n"] if "n" in example else 2**31 - 1
        params = {k: v for k, v in params.items() if k != "keys" or "ks" in inputs}
    if "error" in example:
        with pytest.raises(hisa_port.Refused):
            call(stage, inputs, **params)
        return
    made = call(stage, inputs, **params)
    for name in hisa_port.OUTPUTS[stage]:
        if name in example["expect"]:
            expected = spec_examples.tensor(name, example["expect"][name])
            got = made[name]
            if name == "block_scores":  # outside the window nothing is specified
                outside = np.isneginf(expected)
                got = np.where(outside, expected, got)
            assert_same(got, expected, f"{example['name']}: {name}")


# Against the reference

needs_hisa = pytest.mark.skipif(not os.path.exists(HISA), reason=f"no program {HISA}; set HISA")

SHAPES = [
    # M, N, H, D, B, m, K
    (5, 40, 2, 8, 4, 3, 6),
    (1, 1, 1, 1, 1, 1, 1),
    (7, 33, 3, 5, 8, 2, 9),
    (4, 100, 8, 16, 3, 5, 20),
    (3, 17, 1, 4, 16, 4, 40),
    (6, 300, 4, 32, 16, 6, 64),
    (2, 513, 64, 128, 64, 3, 100),
    (0, 9, 2, 4, 4, 2, 3),
    (3, 0, 2, 4, 4, 2, 3),
    (9, 64, 5, 12, 1, 20, 10),
]
VALUES = ["plain", "ties", "cancel", "wide", "zeros", "permissive"]


def draw_codes(rng, shape, values):
    codes = rng.integers(0, 256, shape, dtype=np.uint8)
    if values == "ties":
        codes = rng.choice(np.array([0x38, 0xB8, 0x40, 0x00, 0x80], np.uint8), shape)
    elif values == "cancel":
        codes = rng.choice(np.array([0x7E, 0xFE, 0x01, 0x81, 0x08], np.uint8), shape)
    elif values == "zeros":
        codes = rng.choice(np.array([0x00, 0x80, 0x38], np.uint8), shape, p=[0.5, 0.4, 0.1])
    if values != "permissive":
        codes = np.where(codes & 0x7F == 0x7F, codes ^ 0x40, codes)
    elif codes.size:
        # NaN in few rows, or nothing else is seen.
        nan = codes & 0x7F == 0x7F
        nan &= rng.random(shape) < 0.05
        codes = np.where((codes & 0x7F == 0x7F) & ~nan, codes ^ 0x40, codes)
    return codes


def draw_floats(rng, shape, values, signed):
    floats = rng.uniform(0.001, 2, shape)
    if values == "ties":
        floats = np.full(shape, 0.5)
    elif values == "wide":
        floats *= 2.0 ** rng.integers(-40, 20, shape)
        floats[rng.random(shape) < 0.1] = 1e-42
    elif values == "zeros":
        floats[rng.random(shape) < 0.4] = 0.0
    if signed:
        floats = np.where(rng.random(shape) < 0.4, -floats, floats)
    if values == "permissive":
        odd = [np.nan, np.inf, -np.inf, -1.0, -0.0]
        floats = np.where(rng.random(shape) < 0.03, rng.choice(odd, shape), floats)
    return floats.astype(np.float32)


def draw_windows(rng, m, n):
    ks, ke = rng.integers(0, n + 1, m), rng.integers(0, n + 1, m)
    swap = (ks > ke) & (rng.random(m) < 0.7)
    ks, ke = np.where(swap, ke, ks), np.where(swap, ks, ke)
    whole = rng.random(m) < 0.3
    ks, ke = np.where(whole, 0, ks), np.where(whole, n, ke)
    padding = rng.random(m) < 0.1
    ks, ke = np.where(padding, 2**31 - 1, ks), np.where(padding, 0, ke)
    return ks.astype(np.int32), ke.astype(np.int32)


def draw(seed, shape, values):
    rng = np.random.default_rng(seed)
    m, n, h, d, _, _, _ = shape
    ks, ke = draw_windows(rng, m, n)
    x = draw_floats(rng, (m, d), values, True)
    if values == "plain":
        x *= np.float32(2.0) ** rng.integers(-30, 30, (m, 1)).astype(np.float32)
    return {
        "q": draw_codes(rng, (m, h, d), values),
        "k": draw_codes(rng, (n, d), values),
        "k_scale": draw_floats(rng, (n,), values, False),
        "weights": draw_floats(rng, (m, h), values, True),
        "ks": ks,
        "ke": ke,
        "x": x,
    }


def evaluate(folder, inputs, params, indexer):
    """What `hisa eval --all` makes of the inputs."""
    source, target = str(folder / "in.safetensors"), str(folder / "out.safetensors")
    hisa_port.write_safetensors(source, inputs)
    command = [HISA, "eval", "--input", source, "--out", target, "--all", "--indexer", indexer]
    command += ["--block-size", str(params["block_size"]), "--topk", str(params["topk_tokens"])]
    command += ["--block-topk", str(params["block_topk"]), "--rank", params["rank"]]
    command += [] if params["strict"] else ["--permissive"]
    subprocess.run(command, check=True, capture_output=True)
    return hisa_port.read_safetensors(target)[0]


def assert_scores(got, truth, inputs, key_of, keys, scales, what):
    """Scores within what exact dots and f64 sums allow; specials equal."""
    assert got.shape == truth.shape, what
    assert (np.isnan(got) == np.isnan(truth)).all(), what
    same = (got == truth) | np.isnan(truth)
    for row, column in zip(*np.nonzero(~same)):
        key = key_of(row, column)
        q = hisa_port.e4m3_decode(inputs["q"][row]).astype(np.float64)
        dots = q @ hisa_port.e4m3_decode(keys[key]).astype(np.float64)  # exact
        weights, scale = inputs["weights"][row], scales[key]
        assert np.isfinite(weights).all() and np.isfinite(scale), f"{what}[{row}, {column}]"
        terms = [F(w) * F(max(dot, 0.0)) * F(scale) for w, dot in zip(weights, dots)]
        exact, size = sum(terms), sum(map(abs, terms))
        assert np.isfinite(got[row, column]) and size < F(2) ** 127, f"{what}[{row}, {column}]"
        step = max(abs(exact) / 2**24, F(2) ** -150)
        bound = step * (1 + F(2) ** -20) + size * (len(terms) + 3) / 2**52
        error = abs(F(got[row, column]) - exact)
        assert error <= bound, f"{what}[{row}, {column}]: {float(error)} above {float(bound)}"


def F(value):
    return fractions.Fraction(float(value))


def inside(inputs, block, blocks):
    """Which entries of `[M, Nb]` lie in the block window."""
    ks, ke = inputs["ks"][:, None].astype(np.int64), inputs["ke"][:, None].astype(np.int64)
    ids = np.arange(blocks)
    return (ks < ke) & (ids >= ks // block) & (ids < -(-ke // block))


CASES = [(shape, values) for shape in SHAPES for values in VALUES]


@needs_hisa
@pytest.mark.parametrize("shape, values", CASES)
def test_stages_agree_with_the_reference(tmp_path, shape, values):
    seed = random.Random(f"{shape} {values}").getrandbits(32)
    inputs = draw(seed, shape, values)
    b, top, k = shape[4:]
    params = {"block_size": b, "block_topk": top, "topk_tokens": k, "rank": "bf16"}
    params["strict"] = values != "permissive"
    params["rank"] = ["bf16", "f32"][seed % 2]
    truth = evaluate(tmp_path, inputs, params, "hisa")
    made = {**inputs, **truth}

    quantized = call("quantize", inputs, **params)
    assert_same(quantized["codes"], truth["codes"], "codes")
    assert_same(quantized["scale"], truth["scale"], "scale")

    for stage, extra in (("block_pool", {}), ("append", {"pieces": pieces_of(seed, shape[1])})):
        pooled = call(stage, inputs, **params, **extra)
        if values != "wide":  # there an f64 sum rounds, which is declared
            assert_same(pooled["pooled_k"], truth["pooled_k"], stage)
            assert_same(pooled["pooled_scale"], truth["pooled_scale"], stage)

    scores = call("block_scores", made, **params)["block_scores"]
    seen = inside(inputs, b, scores.shape[1])
    assert_scores(
        np.where(seen, scores, -np.inf), truth["block_scores"], inputs,
        lambda row, column: column, truth["pooled_k"], truth["pooled_scale"], "block_scores",
    )  # fmt: skip
    masked = call("block_mask", made, **params)["block_mask"]
    assert masked.tobytes() == truth["block_mask"].tobytes()
    assert_same(call("block_topk", made, **params)["block_ids"], truth["block_ids"], "block_ids")
    scores = call("token_scores", made, **params)["token_scores"]
    ids = truth["block_ids"]
    assert_scores(
        scores, truth["token_scores"], inputs,
        lambda row, slot: ids[row, slot // b] * b + slot % b,
        inputs["k"], inputs["k_scale"], "token_scores",
    )  # fmt: skip
    assert_same(call("token_topk", made, **params)["slots"], truth["slots"], "slots")
    assert_same(call("index_map", made, **params)["indices"], truth["indices"], "indices")


def pieces_of(seed, n):
    rng, pieces = random.Random(seed), []
    while sum(pieces) < n:
        pieces.append(rng.randint(0, n - sum(pieces)))
    return pieces


@needs_hisa
@pytest.mark.parametrize("shape, values", [c for c in CASES if c[1] in ("plain", "ties", "zeros")])
def test_indexers_agree_with_the_reference(tmp_path, shape, values):
    inputs = draw(7, shape, values)
    b, top, k = shape[4:]
    params = {"block_size": b, "block_topk": top, "topk_tokens": k, "rank": "bf16", "strict": True}
    truth = evaluate(tmp_path, inputs, params, "hisa")
    assert_same(call("hisa", inputs, **params)["indices"], truth["indices"], "hisa")
    truth = evaluate(tmp_path, inputs, params, "dsa")
    made = call("dsa", inputs, **params)
    assert_scores(
        made["flat_scores"], truth["flat_scores"], inputs,
        lambda row, column: column, inputs["k"], inputs["k_scale"], "flat_scores",
    )  # fmt: skip
    assert_same(made["indices"], truth["indices"], "dsa")
    truth = evaluate(tmp_path, inputs, params, "block-sparse")
    made = call("block_sparse", inputs, **params)
    assert_same(made["block_ids"], truth["block_ids"], "block_sparse ids")
    assert_same(made["indices"], truth["indices"], "block_sparse")


@pytest.mark.parametrize(
    "name, value",
    [("q", 0x7F), ("q", 0xFF), ("k", 0xFF), ("k_scale", np.inf), ("k_scale", -1.0)]
    + [("k_scale", np.nan), ("weights", -np.inf), ("weights", np.nan)],
)
def test_strict_mode_refuses_values(name, value):
    inputs = draw(1, SHAPES[0], "plain")
    inputs[name].flat[-1] = value
    params = {"block_size": 4, "block_topk": 2, "topk_tokens": 3, "rank": "bf16"}
    with pytest.raises(hisa_port.Refused, match=name):
        call("hisa", inputs, **params)
    call("hisa", inputs, **params, strict=False)


def test_windows_end_with_their_sequence():
    # Positions far behind the keys: both rows of sequence 0 see its two keys, no more.
    cu = {"cu_seqlens_q": np.array([0, 2, 3]), "cu_seqlens_k": np.array([0, 2, 9])}
    made = call("windows", cu, kv_stride=2, first_positions=[9, 1])
    assert [made["ks"].tolist(), made["ke"].tolist()] == [[0, 0, 2], [2, 2, 3]]


def test_a_case_of_small_memory_is_scored_in_chunks(monkeypatch):
    import torch_hisa

    inputs = draw(3, SHAPES[5], "plain")
    params = {"block_size": 16, "block_topk": 6, "topk_tokens": 64, "rank": "bf16"}
    whole = [call(stage, inputs, **params) for stage in ("hisa", "dsa")]
    monkeypatch.setitem(torch_hisa.BUDGET, "cpu", 2500)
    monkeypatch.setitem(torch_hisa.BUDGET, "cuda", 2500)
    parts = [call(stage, inputs, **params) for stage in ("hisa", "dsa")]
    for one, other in zip(whole, parts):
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_the_process_answers_one_case_and_several(tmp_path):
    inputs = draw(1, SHAPES[0], "plain")
    source, params = str(tmp_path / "in"), {"block_size": 4}
    hisa_port.write_safetensors(source, inputs)
    cases = [
        {"stage": "block_pool", "params": params, "in": source, "out": str(tmp_path / name)}
        for name in ("a", "b", "c")
    ]
    lines = [{"hello": 1}, {"id": 1, **cases[0]}, {"id": 2, "cases": cases[1:]}]
    command = [sys.executable, os.path.join(PORTS, "torch_port.py"), "--device", DEVICE]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    hello, one, several = map(json.loads, done.stdout.splitlines())
    assert hello["hello"] == 1 and hello["numerics"] == torch_port.NUMERICS
    assert one == {"id": 1, "status": "ok"}
    assert several == {"id": 2, "cases": [{"status": "ok"}] * 2}
    made = call("block_pool", inputs, **params)
    for name in ("a", "b", "c"):
        got, _ = hisa_port.read_safetensors(tmp_path / name)
        assert all(got[out].tobytes() == made[out].tobytes() for out in made)


def test_all_codes_decode():
    import torch_hisa

    codes = torch.arange(256, dtype=torch.uint8)
    got = torch_hisa.decode(codes).float().numpy()
    np.testing.assert_array_equal(got, hisa_port.E4M3)
    real = ~np.isnan(got)
    assert (np.signbit(got) == np.signbit(hisa_port.E4M3))[real].all()


def test_encode_rounds_once_at_every_middle():
    import torch_hisa

    values = hisa_port.E4M3[:127].astype(np.float64)
    middles = (values[:-1] + values[1:]) / 2
    x = np.concatenate([values, middles, np.nextafter(middles, 0), np.nextafter(middles, 999)])
    x = np.concatenate([x, [464, np.nextafter(464, 999), 1e30, np.inf]])
    x = np.concatenate([x, -x, [np.nan]])
    for overflow in ("saturating", "non-saturating"):
        got = torch_hisa.encode(torch.from_numpy(x), overflow).numpy()
        np.testing.assert_array_equal(got, hisa_port.e4m3_encode(x, overflow))
    assert torch_hisa.encode(torch.tensor([1.0625000000001], dtype=torch.float64)).item() == 0x39


def test_where_torch_is_missing_one_line_says_so(tmp_path):
    # An interpreter without site packages has neither torch nor numpy.
    for port in ("torch_port.py", "tilelang_port.py", "deepgemm_port.py"):
        command = [sys.executable, "-S", "-E", os.path.join(PORTS, port)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 1 and done.stdout == "", port
        assert done.stderr == "torch is missing: pip install torch\n", port
