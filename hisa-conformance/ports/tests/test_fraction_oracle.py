"""fraction_oracle.py against the examples of SPEC, the reference, and planted faults.

HISA names the reference's binary; what needs it is skipped without. HISA_DUMPS is the number of
random dumps for each of the three indexers (60), HISA_SEED the first seed (1).
"""

import hashlib
import itertools
import json
import os
import random
import re
import struct
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

PORTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PORTS))
import fraction_oracle as oracle  # noqa: E402
from fraction_oracle import Call, Refused, Tensor  # noqa: E402

SPEC = PORTS.parents[1] / "docs" / "SPEC.md"
EXAMPLES = [json.loads(text) for text in
            re.findall(r"^```json example\n(.*?)^```", SPEC.read_text("utf-8"), re.S | re.M)]
HISA = os.environ.get("HISA")
needs_hisa = pytest.mark.skipif(not HISA, reason="HISA does not name the reference's binary")


# --- The examples of SPEC.

DTYPES = {"q": "U8", "k": "U8", "pooled_k": "U8", "codes": "U8", "ks": "I32", "ke": "I32",
          "cu_seqlens": "I64", "cu_seqlens_q": "I32", "cu_seqlens_k": "I32", "block_ids": "I32",
          "slots": "I32", "indices": "I32", "block_windows": "I32", "order": "I32"}
RANKS = {"q": 3, "k": 2}


def element(value, dtype):
    if isinstance(value, str) and value.startswith("0x"):
        return int(value, 16)
    if dtype != "F32":
        return value
    special = {"inf": 0x7F800000, "-inf": 0xFF800000, "nan": 0x7FC00000}
    if value in special:
        return special[value]
    exact = Fraction(value)
    bits = oracle.to_f32(exact.numerator, exact.denominator)
    assert oracle.f32_value(bits) == exact * oracle.F32_UNIT
    return bits


def tensor(name, nested):
    dtype = DTYPES.get(name, "F32")
    sizes, level = [], nested
    while isinstance(level, list):
        sizes.append(len(level))
        level = level[0] if level else None
    flat = nested
    for _ in sizes[1:]:
        flat = list(itertools.chain.from_iterable(flat))
    sizes += [1] * (RANKS.get(name, 1) - len(sizes))
    return Tensor(dtype, sizes, [element(value, dtype) for value in flat])


def params_of(example):
    """`n` is a parameter, and `rows` counts padding rows that a fixture counts beside it."""
    params = dict(example.get("params", {}))
    if "n" in example:
        params["n"] = example["n"]
    if "rows" in params:
        params["padding_rows"] = params["rows"] - example["cu_seqlens"][-1]
    return params


def call_small(stage, example):
    """The examples of section V, which are no ops."""
    params, out = example.get("params", {}), {}
    if stage == "decode":
        values = [oracle.CODE_VALUES[int(code, 16)] for code in example["codes"]]
        bits = [oracle.f32_bits(value, oracle.CODE_UNIT) for value in values]
        signed = [one | 1 << 31 if int(code, 16) == 0x80 else one
                  for one, code in zip(bits, example["codes"])]
        return {"values": signed}
    x = tensor("x", example["x"]).data
    values = [oracle.f32_value(bits) for bits in x]
    if stage == "bf16":
        out["bf16"] = [oracle.to_bf16(bits) for bits in x]
    elif stage == "order":
        out["order"] = sorted(range(len(x)), key=lambda i: (oracle.order_key(values[i]), i))
    elif stage == "encode":
        saturating = params["overflow"] == "saturating"
        out["codes"] = [
            (0x7F if saturating else 0x7F | bits >> 24 & 0x80) if value != value else
            oracle.encode(abs(value) if isinstance(value, int) else None, oracle.F32_UNIT,
                          bool(bits >> 31), saturating)
            for bits, value in zip(x, values)]
    return out


@pytest.mark.parametrize("example", EXAMPLES, ids=[e["name"] for e in EXAMPLES])
def test_example(example):
    stage, expect = example["stage"], example.get("expect", {})
    if stage in ("decode", "encode", "bf16", "order"):
        out = call_small(stage, example)
        assert out == {name: tensor(name, value).data for name, value in expect.items()}
        return
    params = params_of(example)
    names = set(example) & (set(DTYPES) | {"x", "weights", "k_scale", "pooled_scale",
                                           "block_scores", "block_mask", "token_scores"})
    tensors = {name: tensor(name, example[name]) for name in names}
    calls = [("append" if stage == "incremental" else stage, params)]
    if stage == "incremental":
        calls = [("append", dict(params, pieces=list(itertools.accumulate(split))))
                 for split in example["splits"]]
    for op, params in calls:
        if "error" in example:
            with pytest.raises(Refused) as refusal:
                oracle.OPS[op](Call(tensors, params))
            assert example["error"] in str(refusal.value)
            continue
        out = oracle.OPS[op](Call(tensors, params))
        for name, value in expect.items():
            assert oracle.differences(name, tensor(name, value), out[name]) == []


def test_every_example_is_read():
    assert len(EXAMPLES) == SPEC.read_text("utf-8").count("```json example") > 60


# --- Random dumps.


def write_safetensors(path, tensors, metadata=None):
    header, body = {"__metadata__": metadata or {}}, b""
    for name, one in tensors.items():
        letter = oracle.WIDTHS[one.dtype][0]
        raw = struct.pack(f"<{len(one.data)}{letter}", *one.data)
        header[name] = {"dtype": one.dtype, "shape": one.shape,
                        "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


NASTY_SCALES = [0x00000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F000000, 0x00000000, 0x80000000,
                0x3F800000, 0x3F800001, 0x2EDBE6FF, 0x38D1B717, 0x01000000, 0x30800000]
PERMISSIVE = [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0xBF800000, 0x80000001]
CODE_KINDS = [lambda r: r.randrange(256), lambda r: r.choice((0x38, 0xB8, 0x00, 0x80)),
              lambda r: r.randrange(8) | r.choice((0, 0x80)), lambda r: 0x38,
              lambda r: r.choice((0x7E, 0xFE, 0x01, 0x81, 0x40)), lambda r: r.randrange(0x30, 0x48)]
FLOAT_KINDS = [lambda r: r.choice((0x3F800000, 0x40000000, 0x3F000000)),
               lambda r: r.randrange(0x3C000000, 0x43000000), lambda r: r.randrange(0x7F800000),
               lambda r: r.choice(NASTY_SCALES), lambda r: r.randrange(0x00000000, 0x01000000),
               lambda r: r.randrange(0x7E000000, 0x7F800000),
               lambda r: 0x3F800000 + r.randrange(4) * r.choice((1, 0x100, 0x8000))]


def ragged(r, total, parts):
    inner = sorted(r.choice((0, total, r.randint(0, total))) for _ in range(parts - 1))
    return [0] + inner + [total]


def random_windows(r, m, n):
    form = r.randrange(3)
    dtype = r.choice(("I32", "I64"))
    if form == 0:
        cu = ragged(r, n, r.randint(1, 4)) if n else [0] * r.randint(1, 3)
        return {"cu_seqlens": Tensor(dtype, [len(cu)], cu)}, n
    if form == 1:
        parts = r.randint(1, 4)
        out = {name: ragged(r, end, parts)
               for name, end in (("cu_seqlens_q", m), ("cu_seqlens_k", n))}
        return {name: Tensor(dtype, [len(cu)], cu) for name, cu in out.items()}, m
    ks, ke = [], []
    for _ in range(m):
        start = r.randint(0, max(n - 1, 0))
        empty = n == 0 or r.random() < 0.2
        pair = r.choice(((2147483647, 0), (start, start), (start + 1, start), (-3, -5))) if empty \
            else (start, r.randint(start + 1, n))
        pair = (0, n) if r.random() < 0.3 and n else pair
        ks.append(pair[0])
        ke.append(pair[1])
    return {"ks": Tensor("I32", [m], ks), "ke": Tensor("I32", [m], ke)}, m


def random_dump(seed, indexer):
    r = random.Random(f"{seed} {indexer}")
    n, h, d = r.choice((0, 1, 2, r.randint(1, 40), 40)), r.randint(1, 4), r.randint(1, 16)
    if r.random() < 0.1:
        n = r.randint(1, 12)
    given, m = random_windows(r, r.choice((0, 1, r.randint(1, 12))), n)
    strict = r.random() < 0.6
    nan_rate = r.choice((0, 0, 0.01, 0.2)) if not strict else r.choice((0, 0, 0, 0, 0.002))

    def codes(shape, count):
        kind = r.choice(CODE_KINDS)
        data = [kind(r) for _ in range(count)]
        data = [(c ^ 1 if c & 0x7F == 0x7F else c) for c in data]
        data = [r.choice((0x7F, 0xFF)) if r.random() < nan_rate else c for c in data]
        return Tensor(r.choice(("U8", "F8_E4M3")), shape, data)

    def floats(shape, count, signed):
        kind, negative = r.choice(FLOAT_KINDS), r.choice((0, 0.3, 1)) if signed else 0
        data = [kind(r) | (1 << 31 if r.random() < negative else 0) for _ in range(count)]
        data = [r.choice(PERMISSIVE) if r.random() < nan_rate else bits for bits in data]
        return Tensor("F32", shape, data)

    tensors = {"q": codes([m, h, d], m * h * d), "k": codes([n, d], n * d),
               "k_scale": floats([n], n, not strict), "weights": floats([m, h], m * h, True)}
    tensors.update(given)
    block, kept = r.randint(1, 8), r.choice((1, 2, 3, r.randint(1, 12)))
    if r.random() < 0.2:  # scores within a few steps of bf16, many blocks, few places
        step = r.choice((0x800, 0x1000, 0x4000, 0x8000))
        tensors["k"].data[:] = [0x38] * (n * d)
        tensors["k_scale"].data[:] = [0x3F800000 + r.randrange(16) * step for _ in range(n)]
        block, kept = r.randint(1, 3), r.randint(3, 6)
    if r.random() < 0.3:
        rows, width = r.randint(0, 4), r.randint(1, 9)
        x = floats([rows, width], rows * width, True)
        if r.random() < 0.3:
            x = Tensor(r.choice(("BF16", "U16")), x.shape, [bits >> 16 for bits in x.data])
        tensors["x"] = x
    return tensors, {"indexer": indexer, "block_size": str(block), "block_topk": str(kept),
                     "topk_tokens": str(r.choice((1, 2, r.randint(1, 24), 48))),
                     "rank": r.choice(("bf16", "bf16", "f32")), "strict": str(strict).lower()}


def evaluate(folder, tensors, metadata, name="dump"):
    """(input, output) paths and the reference's message where it refuses."""
    source, result = folder / f"{name}.safetensors", folder / f"{name}-out.safetensors"
    write_safetensors(source, tensors, metadata)
    result.unlink(missing_ok=True)
    done = subprocess.run([HISA, "eval", "--all", "--input", str(source), "--out", str(result)],
                          capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == result.exists(), done.stderr
    return source, result, None if done.returncode == 0 else done.stderr.strip()


@needs_hisa
@pytest.mark.parametrize("indexer", ("hisa", "dsa", "block-sparse"))
def test_random_dumps(indexer, tmp_path, capsys):
    count, first = int(os.environ.get("HISA_DUMPS", "60")), int(os.environ.get("HISA_SEED", "1"))
    refused = 0
    for seed in range(first, first + count):
        source, result, message = evaluate(tmp_path, *random_dump(seed, indexer))
        status = oracle.main(["--dump", str(source), str(result)])
        printed = capsys.readouterr()
        told = f"seed {seed}: {printed.out}{printed.err}reference: {message}"
        assert status == 0, told
        assert ("refused: " in printed.out) == (message is not None), told
        refused += message is not None
    assert refused < count / 2
    with capsys.disabled():
        print(f" [{indexer}: {count} dumps, {refused} refused by both]", end="")


# --- Planted faults.


def flipped(one, at, bit):
    width = oracle.WIDTHS[one.dtype][1] * 8
    data = list(one.data)
    value = (data[at] ^ 1 << bit % width) & (1 << width) - 1
    signed = one.dtype in ("I32", "I64") and value >> (width - 1)
    data[at] = value - (1 << width) if signed else value
    return Tensor(one.dtype, one.shape, data)


@needs_hisa
@pytest.mark.parametrize("indexer", ("hisa", "dsa", "block-sparse"))
def test_one_flipped_bit_of_an_output_is_reported(indexer, tmp_path, capsys):
    r, planted = random.Random(indexer), set()
    for seed in range(500, 520):
        source, result, message = evaluate(tmp_path, *random_dump(seed, indexer))
        if message is not None:
            continue
        outputs, _ = oracle.read_safetensors(result)
        for name in (name for name, one in outputs.items() if one.data):
            at, bit = r.randrange(len(outputs[name].data)), r.randrange(32)
            changed = dict(outputs, **{name: flipped(outputs[name], at, bit)})
            write_safetensors(result, changed)
            assert oracle.main(["--dump", str(source), str(result)]) == 1
            where = f"{name}{outputs[name].coordinate(at)}: want "
            printed = capsys.readouterr().out
            assert where in printed and printed.endswith(" 1 differences\n")
            planted.add(name)
        write_safetensors(result, {name: outputs[name] for name in list(outputs)[1:]})
        assert oracle.main(["--dump", str(source), str(result)]) == 1
        capsys.readouterr()
    assert planted >= {"indices"} | ({"flat_scores", "slots"} if indexer == "dsa" else
                                     {"pooled_k", "pooled_scale", "block_mask", "block_ids"})


# --- Refusals.


def ones(m=2, n=4, h=1, d=2):
    return {"q": Tensor("U8", [m, h, d], [0x38] * (m * h * d)),
            "k": Tensor("U8", [n, d], [0x38] * (n * d)),
            "k_scale": Tensor("F32", [n], [0x3F800000] * n),
            "weights": Tensor("F32", [m, h], [0x3F800000] * (m * h)),
            "ks": Tensor("I32", [m], [0] * m), "ke": Tensor("I32", [m], [n] * m)}


def ints(*values):
    return Tensor("I32", [len(values)], list(values))


def without_windows(**more):
    tensors = ones(4, 4)
    return dict({name: tensors[name] for name in ("q", "k", "k_scale", "weights")}, **more)


FAULTS = [  # tensor, place, bits, whether V.7 refuses them
    ("q", 3, 0x7F, True), ("q", 0, 0xFF, True), ("q", 0, 0x80, False), ("k", 7, 0xFF, True),
    ("k_scale", 3, 0x80000001, True), ("k_scale", 0, 0xBF800000, True),
    ("k_scale", 0, 0x7F800000, True), ("k_scale", 1, 0xFF800000, True),
    ("k_scale", 2, 0xFFC00000, True), ("k_scale", 0, 0x80000000, False),
    ("k_scale", 0, 0x7F7FFFFF, False), ("weights", 1, 0x7F800000, True),
    ("weights", 1, 0xFF800000, True), ("weights", 0, 0x7F800001, True),
    ("weights", 0, 0xBF800000, False), ("weights", 0, 0x80000000, False)]
SHAPES = [  # change of tensors, change of parameters, part of the refusal or None
    ({"ke": ints(4, 5)}, {}, "row 1: window [0, 5)"),
    ({"ks": ints(-1, 0)}, {}, "row 0: window [-1, 4)"),
    ({"ks": ints(9, 0), "ke": ints(9, 4)}, {}, None),
    ({"ks": ints(-5, 0), "ke": ints(-7, 4)}, {}, None),
    ({"ks": ints(0), "ke": ints(4)}, {}, "ks has shape [1]"),
    ({}, {"block_size": "0"}, "block_size is 0"),
    ({}, {"block_size": str(2**31)}, "block_size"), ({}, {"topk_tokens": "0"}, "topk_tokens is 0"),
    ({}, {"block_topk": "0"}, "block_topk is 0"), ({}, {"strict": "maybe"}, "strict is maybe"),
    ({}, {"rank": "f16"}, "rank is f16"),
    ({}, {"block_size": "65536", "block_topk": "32768"}, "32768"),
    ({"weights": Tensor("F32", [2, 2], [0] * 4)}, {}, "weights has shape"),
    ({"k_scale": Tensor("F32", [3], [0] * 3)}, {}, "k_scale has shape"),
    ({"k": Tensor("U8", [4, 1], [0] * 4)}, {}, "k has shape"),
    ({"q": Tensor("U8", [2, 0, 2], []), "weights": Tensor("F32", [2, 0], [])}, {}, "0 heads")]
OFFSETS = [
    ({"cu_seqlens": ints()}, "empty"), ({"cu_seqlens": ints(0, 3)}, "ends with 3"),
    ({"cu_seqlens": ints(1, 4)}, "cu_seqlens[0]"),
    ({"cu_seqlens": ints(0, -1, 4)}, "cu_seqlens[1]"),
    ({"cu_seqlens": Tensor("I64", [3], [0, 2**40, 2**40])}, "1099511627776"),
    ({"cu_seqlens_q": ints(0, 4)}, "cu_seqlens_k is missing"), ({}, "in one way"),
    ({"cu_seqlens_q": ints(0, 4), "cu_seqlens_k": ints(0, 2, 4)}, "2 entries"),
    ({"cu_seqlens_q": ints(0, 4), "cu_seqlens_k": ints(0, 5)}, "ends with 5"),
    ({"cu_seqlens": ints(0, 4), "cu_seqlens_k": ints(0, 4)}, "in one way"),
    ({"cu_seqlens": ints(0, 4), "ks": ints(0, 0, 0, 0), "ke": ints(4, 4, 4, 4)}, "in one way"),
    ({"cu_seqlens": ints(0, 2), "q": ones()["q"], "weights": ones()["weights"]}, "2 keys, not 4"),
    ({"cu_seqlens": ints(0, 0, 4, 4)}, None)]


def faulty_calls():
    """(tensors, metadata, part of the refusal or None)"""
    for name, at, bits, fault in FAULTS:
        tensors = ones()
        tensors[name].data[at] = bits
        where = f"{name}{tensors[name].coordinate(at)} is "
        yield tensors, {}, where if fault else None
        yield tensors, {"strict": "false"}, None
    for change, metadata, said in SHAPES:
        yield dict(ones(), **change), metadata, said
    for change, said in OFFSETS:
        yield without_windows(**change), {}, said
    two = dict(ones(), weights=Tensor("F32", [2, 1], [0x7FC00000] * 2))
    two["k"].data[7] = 0x7F  # V.7: k is looked at before weights
    yield two, {}, "k[3, 1] is NaN"


SMALL = {"block_size": "2", "block_topk": "2", "topk_tokens": "3"}


def test_refusals():
    for tensors, metadata, said in faulty_calls():
        try:
            oracle.evaluate_dump(tensors, dict(SMALL, **metadata))
            told = None
        except Refused as refusal:
            told = str(refusal)
        assert (told is None) == (said is None) and (said or "") in (told or ""), (said, told)


@needs_hisa
@pytest.mark.parametrize("indexer", ("hisa", "dsa", "block-sparse"))
def test_refusals_are_those_of_the_reference(indexer, tmp_path, capsys):
    for tensors, metadata, said in faulty_calls():
        metadata = dict(SMALL, indexer=indexer, **metadata)
        if indexer == "dsa" and metadata.get("rank") == "f16":
            continue  # the reference refuses it, though dsa does not read it
        source, result, message = evaluate(tmp_path, tensors, metadata)
        assert oracle.main(["--dump", str(source), str(result)]) == 0
        printed = capsys.readouterr().out
        assert ("refused: " in printed) == (message is not None), (said, message, printed)
        if said and re.match(r"(q|k|k_scale|weights)\[.*\] is ", said) and message:
            assert said.split(" is ")[0] in message  # the first offender, V.7


# --- What neither the examples nor dumps reach.


def test_windows_are_clamped():
    """W.5: a row that sees nothing is (ks, ks), whatever the lengths; W.6: no row sees more keys
    than there are."""
    cu = {"cu_seqlens_q": ints(0, 4, 5), "cu_seqlens_k": ints(0, 1, 3)}
    out = oracle.op_windows(Call(cu, {}))
    assert (out["ks"].data, out["ke"].data) == ([0, 0, 0, 0, 1], [0, 0, 0, 1, 3])
    out = oracle.op_windows(Call(cu, {"kv_stride": 1, "first_positions": [0, 7]}))
    assert (out["ks"].data, out["ke"].data) == ([0, 0, 0, 0, 1], [1, 1, 1, 1, 3])


@pytest.mark.parametrize("slot, index", ((1, 0), (4, 3), (5, None), (0, None)))
def test_slots_at_the_ends_of_a_window(slot, index):
    tensors = {"slots": Tensor("I32", [1, 1], [slot]), "ks": ints(3), "ke": ints(7),
               "block_ids": Tensor("I32", [1, 3], [1, 2, 3])}
    call = Call(tensors, {"block_size": 2, "n": 8})
    if index is None:
        with pytest.raises(Refused, match="outside the window"):
            oracle.index_map(call)
    else:
        assert oracle.index_map(call)["indices"].data == [index]


def test_sizes_that_no_memory_holds():
    """V.9 at its limits; where only `indices` is wanted, slots and block ids cost nothing."""
    for indexer, block, m, top, refused in (
            ("hisa", 2**31 - 1, 1, 2, False), ("hisa", 1, 2**31 - 1, 2, False),
            ("hisa", 2**30, 2, 2, True), ("hisa", 2, 2**30, 2, True),
            ("block_sparse", 2**30, 1, 2**31 - 1, True)):
        metadata = {"indexer": indexer, "block_size": block, "block_topk": m, "topk_tokens": top}
        if refused:
            with pytest.raises(Refused, match="block_topk . block_size"):
                oracle.evaluate_dump(ones(), metadata, ["indices"])
        else:
            out = oracle.evaluate_dump(ones(), metadata, ["indices"])
            assert out["indices"].data == [0, 1, 0, 1]


# --- Fixtures: a folder of one case per op, made of the examples and what SPEC expects of them.


def entry(folder, ident, op, tensors, outputs, **more):
    path = folder / f"{ident}.safetensors"
    write_safetensors(path, tensors)
    inputs = [name for name in tensors if name not in outputs + ["must", "may"]]
    return dict({"id": ident, "op": op, "file": path.name, "inputs": inputs, "outputs": outputs,
                 "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "params": {},
                 "result": "exact"}, **more)


def example_entry(folder, example, change=None, **more):
    """`change` alters the tensors of the file; None where the example is no op."""
    op = "append" if example["stage"] == "incremental" else example["stage"]
    if op not in oracle.OPS:
        return None
    params, outputs = params_of(example), list(example.get("expect", {}))
    if "splits" in example:
        params["pieces"] = [1, len(example["k"]), 0, len(example["k"])]
    names = set(example) - {"name", "clause", "stage", "params", "expect", "error", "n", "splits"}
    tensors = {name: tensor(name, example[name]) for name in sorted(names)}
    tensors.update((name, tensor(name, value)) for name, value in example.get("expect", {}).items())
    if change:
        change(tensors)
    result = {"result": "rejected", "error": example["error"]} if "error" in example else {}
    return entry(folder, example["name"], op, tensors, outputs, params=params, **result, **more)


def confirm(folder, cases, capsys):
    manifest = {"schema": 1, "spec": 1, "cases": cases}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    status = oracle.main([str(folder)])
    return status, capsys.readouterr().out


def test_examples_as_fixtures(tmp_path, capsys):
    cases = [case for case in (example_entry(tmp_path, e) for e in EXAMPLES) if case]
    status, printed = confirm(tmp_path, cases, capsys)
    assert status == 0, printed
    refused = sum(case["result"] == "rejected" for case in cases)
    assert printed == f"{len(cases)} cases: {len(cases) - refused} confirmed, {refused} refused\n"
    assert {case["op"] for case in cases} >= set(oracle.OPS) - {"append"} and refused > 10


def test_one_flipped_bit_of_a_fixture_is_reported(tmp_path, capsys):
    r, planted = random.Random(1), set()
    for example in EXAMPLES:
        for name, value in example.get("expect", {}).items():
            whole = tensor(name, value)
            if example["stage"] not in oracle.OPS or name in example or not whole.data:
                continue
            at, bit = r.randrange(len(whole.data)), r.randrange(32)

            def change(tensors, name=name, at=at, bit=bit):
                tensors[name] = flipped(tensors[name], at, bit)
            case = example_entry(tmp_path, example, change)
            status, printed = confirm(tmp_path, [case], capsys)
            assert status == 1, printed
            assert f"{example['name']}: {name}{whole.coordinate(at)}: want " in printed
            planted.add((example["stage"], name))
    assert len(planted) > 15


def test_what_a_manifest_can_get_wrong(tmp_path, capsys):
    find = {example["name"]: example for example in EXAMPLES}
    good, bad = find["hisa-hierarchy"], find["index_map-outside-window"]
    sound = example_entry(tmp_path, good)
    assert confirm(tmp_path, [sound], capsys)[0] == 0
    for change, status, said in (
            ({"sha256": "0" * 64}, 1, "SHA-256"), ({"file": "none"}, 2, "FileNotFoundError"),
            ({"op": "sort"}, 2, "op sort"), ({"result": "rejected"}, 1, "accepted here"),
            ({"outputs": ["pooled_k"]}, 1, "pooled_k: missing"),
            ({"outputs": ["flat_scores"]}, 1, "not an output"),
            ({"params": dict(sound["params"], topk_tokens=0)}, 1, "refused here")):
        got, printed = confirm(tmp_path, [dict(sound, **change)], capsys)
        assert (got, said in printed) == (status, True), printed
    refused = example_entry(tmp_path, bad)
    got, printed = confirm(tmp_path, [dict(refused, result="exact")], capsys)
    assert got == 1 and "key 2, outside the window" in printed
    (tmp_path / refused["file"]).write_bytes(b"short")
    digest = hashlib.sha256(b"short").hexdigest()
    assert confirm(tmp_path, [dict(refused, sha256=digest)], capsys)[0] == 2
    digests = {"id": "big", "op": "hisa", "digests": {"indices": "0"}}
    assert "1 cases: 1 not covered" in confirm(tmp_path, [digests], capsys)[1]
    (tmp_path / "manifest.json").write_text("{")
    assert oracle.main([str(tmp_path)]) == 2


def test_acceptable_sets(tmp_path, capsys):
    """The exact ids of `hisa-hierarchy` are the keys 4 and 5."""
    example = next(one for one in EXAMPLES if one["name"] == "hisa-hierarchy")
    for must, may, said in (([4], [4, 5, 6], None), ([4, 5], [4, 5], None), ([], range(8), None),
                            ([4, 6], [4, 5, 6], "must[0, 6]"), ([4], [4, 6], "may[0, 5]")):
        def change(tensors, must=must, may=may):
            for name, keys in (("must", must), ("may", may)):
                tensors[name] = Tensor("U8", [1, 8], [int(key in keys) for key in range(8)])
        case = dict(example_entry(tmp_path, example, change), result="acceptable")
        case["outputs"] += ["must", "may"]
        status, printed = confirm(tmp_path, [case], capsys)
        assert status == (0 if said is None else 1) and (said or "") in printed, printed


    def two(tensors):
        tensors["must"] = tensors["may"] = Tensor("U8", [1, 8], [0, 0, 0, 0, 2, 1, 0, 0])
    case = dict(example_entry(tmp_path, example, two), result="acceptable")
    assert "must, may[0, 4]: 2, 2; want 0 or 1" in confirm(tmp_path, [case], capsys)[1]
    narrow = dict(example, ks=[4], expect={"indices": [[0, 1]]})
    for key, said in ((3, "may[0, 3]: outside the window"), (7, None)):
        def wide(tensors, key=key):
            for name in ("must", "may"):
                tensors[name] = Tensor("U8", [1, 8], [0, 0, 0, 0, 1, 1, 0, 0])
            tensors["may"].data[key] = 1
        case = dict(example_entry(tmp_path, narrow, wide), result="acceptable")
        assert (said or "1 confirmed") in confirm(tmp_path, [case], capsys)[1]
    case = dict(example_entry(tmp_path, example), result="acceptable")
    assert "must, may: missing" in confirm(tmp_path, [case], capsys)[1]


def test_command_line(tmp_path):
    """2 where nothing can be confirmed; lines beyond --limit are counted."""
    program = [sys.executable, str(PORTS / "fraction_oracle.py")]
    for arguments in ([], [str(tmp_path)], [str(tmp_path), "--dump", "a", "b"]):
        assert subprocess.run(program + arguments, capture_output=True, check=False).returncode == 2
    example = next(one for one in EXAMPLES if one["name"] == "dsa-flat")

    def change(tensors):
        tensors["flat_scores"] = Tensor("F32", [1, 8], [0x41000000] * 8)
    manifest = {"schema": 1, "spec": 1, "cases": [example_entry(tmp_path, example, change)]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    done = subprocess.run(program + [str(tmp_path), "--limit", "2"], capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()) == (1, [
        "dsa-flat: flat_scores[0, 0]: want 1 (0x3F800000), got 8 (0x41000000); SPEC 9.2",
        "dsa-flat: flat_scores[0, 1]: want 1 (0x3F800000), got 8 (0x41000000); SPEC 9.2",
        "dsa-flat: and 6 more", "1 cases: 1 differs"])
