#!/usr/bin/env python3
"""A second opinion on the HISA indexer, written from docs/SPEC.md alone.

    fraction_oracle.py FIXTURES_DIR     confirm every expected value that manifest.json lists
    fraction_oracle.py --dump IN OUT    confirm what `hisa eval --all` made of one input file

Python standard library only. Every value is a rational number until it is rounded, by integer
division, once; no float takes part in any finite result. Clauses of SPEC stand beside the code.

Exit status: 0 all confirmed, 1 something differs, 2 something could not be read or run.
"""

import argparse
import hashlib
import itertools
import json
import os
import re
import struct
import sys
from math import prod
from operator import mul

INF, NAN = float("inf"), float("nan")
INT32_MAX = 2**31 - 1
MAX_HEADS_OR_DIM = 65536
F32_NAN, F32_INF, MINUS_INF, CODE_NAN = 0x7FC00000, 0x7F800000, 0xFF800000, 0x7F


class Refused(Exception):
    """SPEC refuses the call."""


def refuse_if(fault, why):
    if fault:
        raise Refused(why)


class Unusable(Exception):
    """A file or manifest that cannot be read, or asks for something unknown."""


# --- V: values. A finite f32 is an integer in units of 2^-149, a finite code one of 2^-9.
# --- The floats inf, -inf and nan stand beside the integers; no other float occurs.

F32_UNIT, CODE_UNIT = 2**149, 2**9
SCORE_UNIT = F32_UNIT * CODE_UNIT * CODE_UNIT * F32_UNIT  # weight * q * key * scale


def _decode_code(byte):
    """V.1"""
    exponent, fraction = byte >> 3 & 15, byte & 7
    if byte & 0x7F == CODE_NAN:
        return NAN
    units = fraction if exponent == 0 else (8 + fraction) << (exponent - 1)
    return -units if byte & 0x80 else units


CODE_VALUES = [_decode_code(byte) for byte in range(256)]


def f32_value(bits):
    exponent, fraction = bits >> 23 & 255, bits & 0x7FFFFF
    if exponent == 255:
        value = NAN if fraction else INF
    else:
        value = fraction if exponent == 0 else (0x800000 + fraction) << (exponent - 1)
    return -value if bits >> 31 else value


def nearest(num, den, precision, least):
    """V.6: (m, e) with m * 2^e nearest to num/den >= 0, ties to even; m has `precision` bits, or
    fewer where e is `least`, below which e does not go."""
    if num == 0:
        return 0, least
    e = max(num.bit_length() - den.bit_length() - precision, least)
    while True:
        top, bottom = (num, den << e) if e >= 0 else (num << -e, den)
        m, rest = divmod(top, bottom)
        if m < 1 << precision:
            break
        e += 1
    if 2 * rest > bottom or (2 * rest == bottom and m & 1):
        m += 1
    return (m // 2, e + 1) if m == 1 << precision else (m, e)


def to_f32(num, den):
    """V.6 with V.4: RN32(num/den) as bits; a zero is +0.0."""
    m, e = nearest(abs(num), den, 24, -149)
    bits = F32_INF if e > 104 else (e + 149 << 23) + m  # for subnormals too: e is -149
    return bits | 1 << 31 if num < 0 and m else bits


def f32_bits(value, unit):
    """The f32 of an extended real that counts 1/unit."""
    if isinstance(value, int):
        return to_f32(value, unit)
    if value != value:
        return F32_NAN  # V.8
    return F32_INF if value > 0 else MINUS_INF


def to_bf16(bits):
    """V.3: the f32 bits of an f32 rounded to bf16."""
    value = f32_value(bits)
    if not isinstance(value, int):
        return f32_bits(value, 1)
    m, e = nearest(abs(value), F32_UNIT, 8, -133)
    return to_f32(m << (e + 149), F32_UNIT) | bits & 1 << 31


def encode(num, den, negative, saturating=True):
    """V.2 for the number of magnitude num/den; num None is an infinity."""
    sign = 0x80 if negative else 0
    if num is None or num > 464 * den:
        return sign | (0x7E if saturating else CODE_NAN)
    m, e = nearest(num, den, 4, -9)
    return sign | (e + 9 << 3) + m


def ext_mul(a, b):
    """V.7: product in the extended reals; a zero of any sign is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    a, b = ((x > 0) - (x < 0) if isinstance(x, int) else x for x in (a, b))
    return float(a) * float(b)


def ext_add(a, b):
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return (0.0 if isinstance(a, int) else a) + (0.0 if isinstance(b, int) else b)


def order_key(value):
    """V.5: sorts larger values first, NaN last; zeros are equal."""
    return (1, 0) if value != value else (0, -value)


# --- Tensors and files.

CODES = ("U8", "F8_E4M3")
WIDTHS = {"U8": ("B", 1), "F8_E4M3": ("B", 1), "U16": ("H", 2), "BF16": ("H", 2),
          "F32": ("I", 4), "I32": ("i", 4), "I64": ("q", 8)}


class Tensor:
    """Row-major; floats and codes are held as their bits."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), data

    def row(self, index):
        width = prod(self.shape[1:])
        return self.data[index * width:(index + 1) * width]

    def coordinate(self, flat):
        place = []
        for size in reversed(self.shape):
            place.append(flat % size)
            flat //= size
        return "[" + ", ".join(map(str, reversed(place))) + "]"


def read_safetensors(path):
    """(tensors, metadata) of a file."""
    with open(path, "rb") as file:
        raw = file.read()
    if len(raw) < 8:
        raise Unusable(f"{path}: shorter than a header")
    length = struct.unpack("<Q", raw[:8])[0]
    if length > len(raw) - 8:
        raise Unusable(f"{path}: the header ends beyond the file")
    try:
        header = json.loads(raw[8:8 + length])
        metadata = header.pop("__metadata__", {})
        tensors = {name: _tensor(raw, 8 + length, entry) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unusable(f"{path}: {error}") from error
    return tensors, metadata


def _tensor(raw, start, entry):
    dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in WIDTHS:
        raise ValueError(f"dtype {dtype} is not known here")
    letter, width = WIDTHS[dtype]
    count = prod(shape)
    if end - begin != count * width or begin < 0 or start + end > len(raw):
        raise ValueError(f"shape {shape} and bytes {begin} to {end} do not agree")
    data = list(struct.unpack(f"<{count}{letter}", raw[start + begin:start + end]))
    return Tensor(dtype, shape, data)


class Call:
    """The tensors and parameters of one call, with the checks all stages share (V.7, V.9)."""

    def __init__(self, tensors, params, wanted=None):
        self.tensors, self.params, self.wanted = tensors, params, wanted
        strict = self.word("strict", True)
        self.strict = {True: True, False: False, "true": True, "false": False}.get(strict)
        refuse_if(self.strict is None, f"strict is {strict}")

    def word(self, name, default=None):
        value = self.params.get(name)
        return default if value is None else value

    def integer(self, name, default=None):
        value = self.word(name, default)
        try:
            return None if value is None else int(value)
        except (ValueError, TypeError):
            raise Refused(f"{name} is {value}") from None

    def integers(self, name):
        value = self.word(name)
        if isinstance(value, str):
            value = [part for part in value.strip("[]").replace(",", ".").split(".") if part]
        return None if value is None else [int(part) for part in value]

    def choice(self, name, default, other):
        value = self.word(name, default)
        refuse_if(value not in (default, other), f"{name} is {value}")
        return value

    def size(self, name, default):
        value = self.integer(name, default)
        refuse_if(not 1 <= value <= INT32_MAX, f"{name} is {value}")
        return value

    def block_size(self):
        return self.size("block_size", 128)

    def kept_blocks(self, m=None):
        m, block = self.size("block_topk", 64) if m is None else m, self.block_size()
        refuse_if(m * block > INT32_MAX, f"block_topk * block_size is {m} * {block}")
        return m

    def get(self, name, rank, dtypes=("F32",)):
        tensor = self.tensors.get(name)
        refuse_if(tensor is None, f"{name} is missing")
        if tensor.dtype not in dtypes or len(tensor.shape) != rank:
            raise Refused(f"{name} is {tensor.dtype} {tensor.shape}")
        return tensor

    def wants(self, name):
        return self.wanted is None or name in self.wanted

    def check_finite(self, name):
        """V.7: what strict mode refuses in a tensor."""
        tensor = self.tensors[name]
        if not self.strict:
            return
        for flat, bits in enumerate(tensor.data):
            value = CODE_VALUES[bits] if name in ("q", "k") else float_value(tensor, bits)
            fault = "NaN" if value != value else str(value) if value in (INF, -INF) else None
            if name == "k_scale" and value < 0:
                fault = f"{value / F32_UNIT if isinstance(value, int) else value:g}"
            refuse_if(fault, f"{name}{tensor.coordinate(flat)} is {fault}")


def float_value(tensor, bits):
    return f32_value(bits << 16 if tensor.dtype in ("BF16", "U16") else bits)


def places(shape):
    """All coordinates of a shape, row-major."""
    return itertools.product(*map(range, shape))


def agree(*pairs):
    """Shapes that must be equal, as (name, shape, wanted shape)."""
    for name, shape, wanted in pairs:
        if list(shape) != list(wanted):
            raise Refused(f"{name} has shape {list(shape)}, not {list(wanted)}")


def blocks_of(n, block):
    return -(-n // block)


# --- W: windows.


def offsets(call, name, end=None):
    tensor = call.get(name, 1, ("I32", "I64"))
    values = tensor.data
    refuse_if(not values, f"{name} is empty")
    refuse_if(values[0] != 0, f"{name}[0] is {values[0]}, not 0")
    for s in range(1, len(values)):
        if values[s] < values[s - 1]:
            raise Refused(f"{name}[{s}] is {values[s]}, below its predecessor {values[s - 1]}")
    refuse_if(end is not None and values[-1] != end, f"{name} ends with {values[-1]}, not {end}")
    refuse_if(values[-1] > INT32_MAX, f"{name} ends with {values[-1]}")
    return values


def windows(call, rows=None, n=None):
    """W.1 to W.8: (ks, ke, N) of a call that has `rows` rows and `n` keys, where known."""
    given = [name for name in ("ks", "cu_seqlens", "cu_seqlens_q") if name in call.tensors]
    if len(given) != 1 or "cu_seqlens_k" in call.tensors and given != ["cu_seqlens_q"]:
        raise Refused(f"windows are given by {given}, not in one way")
    if given[0] == "ks":
        ks, ke = call.get("ks", 1, ("I32",)).data, call.get("ke", 1, ("I32",)).data
        refuse_if(len(ks) != len(ke), f"ks has {len(ks)} entries, ke {len(ke)}")
    else:
        ks, ke, n = windows_of_sequences(call, given[0], rows, n)
    ks, ke = divide_and_pad(call, list(ks), list(ke))
    if rows is not None:
        agree(("ks", [len(ks)], [rows]))
    for i, (start, end) in enumerate(zip(ks, ke)):
        if start < end and not (0 <= start and (n is None or end <= n)):  # W.1, W.2
            raise Refused(f"row {i}: window [{start}, {end}) is not within the keys [0, {n})")
    return ks, ke, n


def windows_of_sequences(call, name, rows, n):
    """W.4, W.5, W.6"""
    stride = call.integer("kv_stride")
    own = call.integer("cp_ranks") is None and rows is not None
    cu_q = offsets(call, name, rows - call.integer("padding_rows", 0) if own else None)
    lengths = [end - start for start, end in zip(cu_q, cu_q[1:])]
    refuse_if(stride is not None and stride < 1, f"kv_stride is {stride}")
    if "cu_seqlens_k" in call.tensors:
        cu_k = offsets(call, "cu_seqlens_k", n)
        if len(cu_k) != len(cu_q):
            raise Refused(f"cu_seqlens_q has {len(cu_q)} entries, cu_seqlens_k {len(cu_k)}")
    elif (name == "cu_seqlens") == (stride is None):
        cu_k = [0, *itertools.accumulate(length // (stride or 1) for length in lengths)]
    else:
        raise Refused("cu_seqlens_k is missing" if stride is None else
                      "kv_stride needs cu_seqlens_q")
    refuse_if(n is not None and cu_k[-1] != n, f"{name} describes {cu_k[-1]} keys, not {n}")
    first = call.integers("first_positions")
    if first is not None and (stride is None or len(first) != len(lengths)):
        raise Refused(f"first_positions has {len(first)} entries")
    ks, ke = [], []
    for s, length in enumerate(lengths):
        start, end = cu_k[s], cu_k[s + 1]
        for i in range(length):
            seen = i + 1 + (end - start) - length if stride is None else \
                ((first[s] if first else 0) + i + 1) // stride
            ks.append(start)
            ke.append(max(start, min(start + seen, end)))
    return ks, ke, cu_k[-1]


def divide_and_pad(call, ks, ke):
    """W.7, then W.8: padding stands behind the rows of the rank."""
    rank, ranks, padding = (call.integer(name, default) for name, default in (
        ("cp_rank", 0), ("cp_ranks", None), ("padding_rows", 0)))
    if ranks is not None:
        if ranks < 1 or not 0 <= rank < ranks:
            raise Refused(f"cp_rank {rank} is not one of {ranks} ranks")
        if len(ks) % (2 * ranks):
            raise Refused(f"{len(ks)} rows do not split into 2 x {ranks} equal chunks")
        c = len(ks) // (2 * ranks)
        chunks = (rank * c, (2 * ranks - 1 - rank) * c)
        ks, ke = ([x for start in chunks for x in side[start:start + c]] for side in (ks, ke))
    return ks + [INT32_MAX] * padding, ke + [0] * padding


def block_window(start, end, block):
    """W.3"""
    return (start // block, blocks_of(end, block)) if start < end else (0, 0)


def op_windows(call):
    ks, ke, _ = windows(call, call.integer("rows"), call.integer("n"))
    out = {"ks": Tensor("I32", [len(ks)], ks), "ke": Tensor("I32", [len(ke)], ke)}
    if call.word("block_size") is not None:
        pairs = [block_window(*row, call.block_size()) for row in zip(ks, ke)]
        out["block_windows"] = Tensor("I32", [len(ks), 2], [x for pair in pairs for x in pair])
    return out


# --- S: scores.


def vector(codes):
    """Decoded codes; None where one is NaN (S.7)."""
    values = [CODE_VALUES[code] for code in codes]
    return None if any(value != value for value in values) else values


def matrix(tensor):
    return [vector(tensor.row(i)) for i in range(tensor.shape[0])]


class Scorer:
    """S.1 to S.7 for the rows of q and weights."""

    def __init__(self, call):
        q, weights = call.get("q", 3, CODES), call.get("weights", 2)
        self.rows, self.heads, self.dim = q.shape
        if not (1 <= self.heads <= MAX_HEADS_OR_DIM and 1 <= self.dim <= MAX_HEADS_OR_DIM):
            raise Refused(f"q has {self.heads} heads of dimension {self.dim}")
        agree(("weights", weights.shape, q.shape[:2]))
        self.q, self.weights = q, weights
        self.row_heads = self.row_weights = None

    def select(self, row):
        codes, dim = self.q.row(row), self.dim
        self.row_heads = [vector(codes[h * dim:(h + 1) * dim]) for h in range(self.heads)]
        self.row_weights = [f32_value(bits) for bits in self.weights.row(row)]

    def score(self, key, scale):
        """The bits of one score of the selected row."""
        total = NAN if key is None or None in self.row_heads else 0
        if total == 0:
            for head, weight in zip(self.row_heads, self.row_weights):
                dot = sum(map(mul, head, key))  # S.2
                total = ext_add(total, ext_mul(weight, max(0, dot)))  # S.3, S.4
        return f32_bits(ext_mul(total, scale), SCORE_UNIT)  # S.5, S.6


def keys_of(call, scorer, codes, scales):
    k, scale = call.get(codes, 2, CODES), call.get(scales, 1)
    agree((codes, k.shape, [k.shape[0], scorer.dim]), (scales, scale.shape, k.shape[:1]))
    refuse_if(k.shape[0] > INT32_MAX, f"{codes} has {k.shape[0]} rows")
    return matrix(k), [f32_value(bits) for bits in scale.data]


# --- 1: quantize.

LEAST_AMAX = f32_value(0x38D1B717)


def quantize(call):
    x = call.tensors.get("x")
    refuse_if(x is None or x.dtype not in ("F32", "BF16", "U16"), "x is missing or no float tensor")
    dims = call.integers("dims")
    dims = [0] if dims is None else dims
    for at, d in enumerate(dims):  # 1.6
        refuse_if(not 0 <= d < len(x.shape), f"dims: entry {at} is {d}; x has rank {len(x.shape)}")
        refuse_if(d in dims[:at], f"dims: entry {at} is {d}; dims must be distinct")
    ue8m0 = call.choice("scale_format", "f32", "ue8m0") == "ue8m0"
    saturating = call.choice("overflow", "saturating", "non-saturating") == "saturating"
    call.check_finite("x")
    kept = sorted(dims)
    shape = [x.shape[d] for d in kept]
    groups = {place: [] for place in places(shape)}
    for flat, place in enumerate(places(x.shape)):
        groups[tuple(place[d] for d in kept)].append(flat)
    codes, scales = [0] * len(x.data), []
    for group in groups.values():
        scale, group_codes = quantize_group(
            [x.data[flat] for flat in group], x, ue8m0, saturating)
        scales.append(scale)
        for flat, code in zip(group, group_codes):
            codes[flat] = code
    return {"codes": Tensor("U8", x.shape, codes), "scale": Tensor("F32", shape, scales)}


def quantize_group(bits, x, ue8m0, saturating):
    """1.1 to 1.5: (scale bits, codes) of what shares one scale."""
    values = [float_value(x, one) for one in bits]
    sign_bit = 1 << (31 if x.dtype == "F32" else 15)
    if any(value != value for value in values):
        return F32_NAN, [CODE_NAN] * len(values)
    amax = max([abs(value) for value in values] + [LEAST_AMAX])
    scale = F32_INF if amax == INF else to_f32(amax, 448 * F32_UNIT)
    if ue8m0:  # 1.3; 2^-127 is below every scale that 1.1 allows
        scale = min((scale >> 23) + (1 if scale & 0x7FFFFF else 0), 254) << 23
    divisor, codes = f32_value(scale), []
    for one, value in zip(bits, values):
        negative, finite = bool(one & sign_bit), isinstance(value, int)
        if divisor == INF:
            codes.append((0x80 if negative else 0) if finite else CODE_NAN)
        else:
            codes.append(encode(abs(value) if finite else None, divisor, negative, saturating))
    return scale, codes


# --- 2: block_pool.

LEAST_POOLED_SCALE = 0x2EDBE6FF


def block_pool(call, n=None):
    k, k_scale = call.get("k", 2, CODES), call.get("k_scale", 1)
    block, dim = call.block_size(), k.shape[1]
    agree(("k_scale", k_scale.shape, k.shape[:1]))
    refuse_if(not 1 <= dim <= MAX_HEADS_OR_DIM, f"k has dimension {dim}")
    call.check_finite("k")
    call.check_finite("k_scale")
    n = k.shape[0] if n is None else n
    codes, scales = [], []
    for begin in range(0, n, block):  # 2.1
        members = range(begin, min(begin + block, n))
        rows = [(k.row(i), f32_value(k_scale.data[i])) for i in members]
        means = []
        for d in range(dim):  # 2.2
            total = 0
            for row, scale in rows:
                total = ext_add(total, ext_mul(CODE_VALUES[row[d]], scale))
            means.append(f32_value(f32_bits(total, CODE_UNIT * F32_UNIT * len(rows))))
        scale, pooled = pool_codes(means)
        scales.append(scale)
        codes += pooled
    count = blocks_of(n, block)
    return {"pooled_k": Tensor("U8", [count, dim], codes),
            "pooled_scale": Tensor("F32", [count], scales)}


def pool_codes(means):
    """2.3 to 2.7: (scale bits, codes) of the means of a block."""
    if any(mean != mean for mean in means):
        return F32_NAN, [CODE_NAN] * len(means)
    amax = max(abs(mean) for mean in means)
    if amax == INF:
        return F32_INF, [(0x80 if mean < 0 else 0) if isinstance(mean, int) else CODE_NAN
                         for mean in means]
    scale = max(to_f32(amax, 448 * F32_UNIT), LEAST_POOLED_SCALE)
    return scale, [encode(abs(mean), f32_value(scale), mean < 0) for mean in means]


def append(call):
    """9.5: pooling the keys that are there after the last piece."""
    k, pieces = call.get("k", 2, CODES), call.integers("pieces")
    for count in pieces or []:
        refuse_if(not 0 <= count <= k.shape[0], f"pieces has {count}, beyond the {k.shape[0]} keys")
    return block_pool(call, pieces[-1] if pieces else None)


# --- 3 to 8: the other stages.


def filled(rows, width, pad):
    """Rows brought to one width, one after the other."""
    return [x for row in rows for x in row + [pad] * (width - len(row))]


def windows_over_blocks(call, rows, count, block):
    """Windows of a stage that is told `count` blocks and may be told N."""
    n = call.integer("n")
    ks, ke, n = windows(call, rows, n)
    if n is None:  # the least N that these windows and blocks admit
        n = max([end for start, end in zip(ks, ke) if start < end] + [(count - 1) * block + 1, 0])
    refuse_if(count != blocks_of(n, block), f"{count} blocks of {block} keys do not hold {n} keys")
    return ks, ke, n


def score_blocks(call, scorer, pooled_k, pooled_scale, ks, ke):
    """3.1, 3.2: bits [M, Nb]"""
    keys, scales = matrix(pooled_k), [f32_value(bits) for bits in pooled_scale.data]
    out = []
    for row in range(scorer.rows):
        scorer.select(row)
        first, end = block_window(ks[row], ke[row], call.block_size())
        out += [scorer.score(keys[b], scales[b]) if first <= b < end else MINUS_INF
                for b in range(len(keys))]
    return Tensor("F32", [scorer.rows, len(keys)], out)


def block_scores(call):
    scorer, block = Scorer(call), call.block_size()
    pooled_k, pooled_scale = call.get("pooled_k", 2, CODES), call.get("pooled_scale", 1)
    keys_of(call, scorer, "pooled_k", "pooled_scale")
    ks, ke, _ = windows_over_blocks(call, scorer.rows, pooled_k.shape[0], block)
    call.check_finite("q")
    call.check_finite("weights")
    return {"block_scores": score_blocks(call, scorer, pooled_k, pooled_scale, ks, ke)}


def mask_scores(scores, ks, ke, block):
    """4.1 to 4.3"""
    out = []
    for row in range(scores.shape[0]):
        first, end = block_window(ks[row], ke[row], block)
        for b, bits in enumerate(scores.row(row)):
            inside = first <= b < end
            forced = inside and b in (first, end - 1)
            out.append(F32_INF if forced else bits if inside else MINUS_INF)
    return Tensor("F32", scores.shape, out)


def block_mask(call):
    scores, block = call.get("block_scores", 2), call.block_size()
    ks, ke, _ = windows_over_blocks(call, scores.shape[0], scores.shape[1], block)
    return {"block_mask": mask_scores(scores, ks, ke, block)}


def choose_blocks(bits, start, end, block, m, rank):
    """5.1 to 5.4: the chosen ids of one row, ascending"""
    first, stop = block_window(start, end, block)
    last = stop - 1

    def key(b):
        if b in (first, last):
            return (0 if b == last else 1,)
        value = f32_value(bits[b] if rank == "f32" else to_bf16(bits[b]))
        return (2, order_key(value), b)

    return sorted(sorted(range(first, stop), key=key)[:m])


def block_topk(call):
    mask, block, m = call.get("block_mask", 2), call.block_size(), call.kept_blocks()
    rank = call.choice("rank", "bf16", "f32")
    ks, ke, _ = windows_over_blocks(call, mask.shape[0], mask.shape[1], block)
    ids = [choose_blocks(mask.row(row), ks[row], ke[row], block, m, rank)
           for row in range(len(ks))]
    return {"block_ids": Tensor("I32", [len(ks), m], filled(ids, m, -1))}


def checked_block_ids(call, n, block):
    """6.3; n may be unknown"""
    tensor = call.get("block_ids", 2, ("I32",))
    m = call.kept_blocks(call.size("block_topk", tensor.shape[1]))
    refuse_if(tensor.shape[1] != m, f"block_ids has {tensor.shape[1]} columns, not {m}")
    rows = [tensor.row(i) for i in range(tensor.shape[0])]
    for i, row in enumerate(rows):
        for t, b in enumerate(row):
            if b < -1 or (n is not None and b >= blocks_of(n, block)):
                count = "?" if n is None else blocks_of(n, block)
                raise Refused(f"block_ids[{i}, {t}] is {b}; allowed are -1 and 0..{count}")
            if b >= 0 and b in row[:t]:
                raise Refused(f"block_ids[{i}, {t}] repeats block {b}")
    return rows


def keys_in_slots(ids, start, end, block):
    """6.1: (slot, key) of the keys of the blocks `ids` in the window, by slot. The ends of a
    valid window lie within the keys, so no key is N or more."""
    for t, b in enumerate(ids):
        if b >= 0:
            for key in range(max(start, b * block), min(end, (b + 1) * block)):
                yield t * block + key - b * block, key


def score_tokens(scorer, row, pairs, keys, scales):
    """6.2: (slot, key, bits) of every eligible slot"""
    scorer.select(row)
    return [(slot, key, scorer.score(keys[key], scales[key])) for slot, key in pairs]


def spread(rows, width):
    """Token scores over all slots; -inf where there is none."""
    out = [MINUS_INF] * (len(rows) * width)
    for i, row in enumerate(rows):
        for slot, _, bits in row:
            out[i * width + slot] = bits
    return Tensor("F32", [len(rows), width], out)


def token_scores(call):
    scorer, block = Scorer(call), call.block_size()
    keys, scales = keys_of(call, scorer, "k", "k_scale")
    ks, ke, n = windows(call, scorer.rows, len(keys))
    ids = checked_block_ids(call, n, block)
    agree(("block_ids", [len(ids)], [scorer.rows]))
    for name in ("q", "k", "k_scale", "weights"):
        call.check_finite(name)
    scored = [score_tokens(scorer, row, keys_in_slots(ids[row], ks[row], ke[row], block),
                           keys, scales) for row in range(scorer.rows)]
    return {"token_scores": spread(scored, block * call.tensors["block_ids"].shape[1])}


def best_tokens(scored, top):
    """7.2: the first `top` of (slot, key, bits)"""
    return sorted(scored, key=lambda one: (order_key(f32_value(one[2])), one[1]))[:top]


def token_topk(call):
    scores, block, top = call.get("token_scores", 2), call.block_size(), \
        call.size("topk_tokens", 2048)
    ks, ke, n = windows(call, scores.shape[0], call.integer("n"))
    ids = checked_block_ids(call, n, block)
    width = block * call.tensors["block_ids"].shape[1]
    agree(("token_scores", scores.shape, [len(ids), width]))
    rows = []
    for i, blocks in enumerate(ids):
        bits = scores.row(i)
        found = [(slot, key, bits[slot])
                 for slot, key in keys_in_slots(blocks, ks[i], ke[i], block)]
        rows.append([slot for slot, _, _ in best_tokens(found, top)])
    return {"slots": Tensor("I32", [len(rows), top], filled(rows, top, -1))}


def index_map(call):
    slots, block = call.get("slots", 2, ("I32",)), call.block_size()
    ks, ke, n = windows(call, slots.shape[0], call.integer("n"))
    ids, out = checked_block_ids(call, n, block), []
    agree(("block_ids", [len(ids)], slots.shape[:1]))
    top = call.size("topk_tokens", slots.shape[1])
    refuse_if(slots.shape[1] != top, f"slots has {slots.shape[1]} columns, not {top}")
    width = block * call.tensors["block_ids"].shape[1]
    for i, blocks in enumerate(ids):
        for j, slot in enumerate(slots.row(i)):
            name = f"slots[{i}, {j}] is {slot}"
            if not -1 <= slot < width:  # 8.3
                raise Refused(f"{name}; allowed are -1 and 0..{width}")
            if slot < 0:
                out.append(-1)
                continue
            column = slot // block
            if blocks[column] < 0:
                raise Refused(f"{name}, which lies in block column {column}, a -1")
            key = blocks[column] * block + slot % block
            if not ks[i] <= key < ke[i]:
                raise Refused(f"{name}, key {key}, outside the window [{ks[i]}, {ke[i]})")
            out.append(key - ks[i])
    return {"indices": Tensor("I32", slots.shape, out)}


# --- 9: whole indexers.


def indexer_inputs(call):
    scorer = Scorer(call)
    keys, scales = keys_of(call, scorer, "k", "k_scale")
    ks, ke, _ = windows(call, scorer.rows, len(keys))
    for name in ("q", "k", "k_scale", "weights"):
        call.check_finite(name)
    return scorer, keys, scales, ks, ke


def chosen_blocks(call, scorer, ks, ke, m, out):
    """Stages 2 to 5: the ids of every row; their tensors go to `out`."""
    block, rank = call.block_size(), call.choice("rank", "bf16", "f32")
    pooled = block_pool(call)
    scores = score_blocks(call, scorer, pooled["pooled_k"], pooled["pooled_scale"], ks, ke)
    mask = mask_scores(scores, ks, ke, block)
    ids = [choose_blocks(mask.row(row), ks[row], ke[row], block, m, rank)
           for row in range(scorer.rows)]
    out.update(pooled, block_scores=scores, block_mask=mask)
    if call.wants("block_ids"):
        out["block_ids"] = Tensor("I32", [scorer.rows, m], filled(ids, m, -1))
    return ids


def hisa(call):
    """9.1"""
    block, m, top = call.block_size(), call.kept_blocks(), call.size("topk_tokens", 2048)
    scorer, keys, scales, ks, ke = indexer_inputs(call)
    out = {}
    ids = chosen_blocks(call, scorer, ks, ke, m, out)
    scored = [score_tokens(scorer, row, keys_in_slots(ids[row], ks[row], ke[row], block),
                           keys, scales) for row in range(scorer.rows)]
    if call.wants("token_scores"):
        out["token_scores"] = spread(scored, m * block)
    best = [best_tokens(row, top) for row in scored]
    shape = [scorer.rows, top]
    if call.wants("slots"):
        slots = [[slot for slot, _, _ in row] for row in best]
        out["slots"] = Tensor("I32", shape, filled(slots, top, -1))
    indices = [[key - ks[i] for _, key, _ in row] for i, row in enumerate(best)]
    out["indices"] = Tensor("I32", shape, filled(indices, top, -1))
    return out


def dsa(call):
    """9.2"""
    top = call.size("topk_tokens", 2048)
    scorer, keys, scales, ks, ke = indexer_inputs(call)
    flat, rows = [], []
    for row in range(scorer.rows):
        line = [MINUS_INF] * len(keys)
        scored = score_tokens(scorer, row, ((key, key) for key in range(ks[row], ke[row])),
                              keys, scales)
        for _, key, bits in scored:
            line[key] = bits
        flat += line
        rows.append([key - ks[row] for _, key, _ in best_tokens(scored, top)])
    indices = Tensor("I32", [scorer.rows, top], filled(rows, top, -1))
    return {"flat_scores": Tensor("F32", [scorer.rows, len(keys)], flat), "slots": indices,
            "indices": indices}


def block_sparse(call):
    """9.3"""
    block = call.block_size()
    m = call.kept_blocks(blocks_of(call.size("topk_tokens", 2048), block))
    scorer, _, _, ks, ke = indexer_inputs(call)
    out = {}
    ids = chosen_blocks(call, scorer, ks, ke, m, out)
    rows = [[key - ks[i] for _, key in keys_in_slots(row, ks[i], ke[i], block)]
            for i, row in enumerate(ids)]
    out["indices"] = Tensor("I32", [len(rows), m * block], filled(rows, m * block, -1))
    return out


OPS = {"windows": op_windows, "quantize": quantize, "block_pool": block_pool,
       "block_scores": block_scores, "block_mask": block_mask, "block_topk": block_topk,
       "token_scores": token_scores, "token_topk": token_topk, "index_map": index_map,
       "append": append, "hisa": hisa, "dsa": dsa, "block_sparse": block_sparse}

CLAUSES = {"ks": "W", "ke": "W", "block_windows": "W.3", "codes": "1.4", "scale": "1.2",
           "pooled_k": "2.4", "pooled_scale": "2.3", "block_scores": "3.1", "block_mask": "4",
           "block_ids": "5.3", "token_scores": "6.2", "slots": "7.2", "indices": "8.1",
           "flat_scores": "9.2"}


# --- Comparison.


def shown(tensor, bits):
    if tensor.dtype == "F32":
        value = f32_value(bits)
        text = f"{struct.unpack('<f', struct.pack('<I', bits))[0]:.9g}" if value == value else "nan"
        return f"{text} (0x{bits:08X})"
    return f"0x{bits:02X}" if tensor.dtype in CODES else str(bits)


def differences(name, got, want):
    """A line for each place where `got`, of the file, is not `want`, of this program."""
    tail = f"SPEC {CLAUSES.get(name, '?')}"
    if got is None:
        return [f"{name}: missing in the file; {tail}"]
    if got.shape != want.shape or not (got.dtype == want.dtype or
                                       got.dtype in CODES and want.dtype in CODES):
        return [f"{name}: want {want.dtype} {want.shape}, got {got.dtype} {got.shape}; {tail}"]
    return [f"{name}{want.coordinate(at)}: want {shown(want, w)}, got {shown(got, g)}; {tail}"
            for at, (g, w) in enumerate(zip(got.data, want.data)) if g != w]


def check_sets(tensors, out, ks, ke):
    """SPEC 10.17: the exact ids hold `must` and lie in `may`, which lies in the window; both are
    [M, N], by key."""
    lines, indices = [], out["indices"]
    must, may = tensors.get("must"), tensors.get("may")
    if must is None or may is None or must.shape != may.shape or must.shape[0] != len(ks):
        return ["must, may: missing, or of shapes that do not agree; SPEC 10.17"]
    for row, start in enumerate(ks):
        chosen = {i + start for i in indices.row(row) if i >= 0}
        for key, (needed, allowed) in enumerate(zip(must.row(row), may.row(row))):
            if needed not in (0, 1) or allowed not in (0, 1):
                lines.append(f"must, may[{row}, {key}]: {needed}, {allowed}; want 0 or 1")
            elif needed and key not in chosen:
                lines.append(f"must[{row}, {key}]: the exact ids lack this key; SPEC 10.17")
            elif allowed and not start <= key < ke[row]:
                lines.append(f"may[{row}, {key}]: outside the window; SPEC 10.2")
            elif key in chosen and not allowed:
                lines.append(f"may[{row}, {key}]: an exact id is not allowed; SPEC 10.17")
    return lines


def confirm_case(case, folder):
    """(lines to print, outcome) for an entry of the manifest. A note stands where both refuse and
    seem to do so for different reasons."""
    if case.get("digests") and not case.get("file"):
        return [], "not covered"
    path = os.path.join(folder, case["file"])
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if digest != case["sha256"].split(":")[-1]:
        return [f"file: SHA-256 is {digest}, the manifest says {case['sha256']}"], "differs"
    tensors, _ = read_safetensors(path)
    outputs = [name for name in case["outputs"] if name not in ("must", "may")]
    given = case.get("inputs", [])
    if not any(name.startswith("cu_seqlens") for name in tensors):
        given = given + ["ks", "ke"]  # of `windows`, inputs and outputs at once
    inputs = {name: tensors[name] for name in tensors
              if name in given or name not in outputs + ["must", "may"]}
    if case["op"] not in OPS:
        raise Unusable(f"op {case['op']} is not known here")
    try:
        call = Call(inputs, case.get("params", {}), outputs + ["indices"])
        out = OPS[case["op"]](call)
    except Refused as refusal:
        if case["result"] == "rejected":
            subject, error = re.match(r"\w+", str(refusal)).group(), case["error"]
            other = subject not in error and error not in str(refusal)
            return [f"note: refused for {refusal}; manifest: {error}"] * other, "refused"
        return [f"call: refused here, not in the manifest: {refusal}"], "differs"
    if case["result"] == "rejected":
        return [f"call: accepted here; the manifest has it refused: {case.get('error')}"], "differs"
    lines = []
    for name in outputs:
        if name in out:
            lines += differences(name, tensors.get(name), out[name])
        else:
            lines.append(f"{name}: not an output of {case['op']}")
    if case["result"] == "acceptable":
        rows = call.tensors["q"].shape[0] if "q" in call.tensors else None
        lines += check_sets(tensors, out, *windows(call, rows)[:2])
    digested = case.get("digests")
    return lines, "differs" if lines else "partly" if digested else "confirmed"


def confirm_fixtures(folder, limit):
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    if manifest.get("schema") != 1 or manifest.get("spec") != 1:
        raise Unusable(f"schema {manifest.get('schema')}, spec {manifest.get('spec')}: not 1, 1")
    counts = dict.fromkeys(("confirmed", "refused", "not covered", "partly", "differs",
                            "unusable"), 0)
    for case in manifest["cases"]:
        try:
            lines, outcome = confirm_case(case, folder)
        except (Unusable, OSError, LookupError, ValueError, TypeError, AttributeError) as error:
            lines, outcome = [f"{type(error).__name__}: {error}"], "unusable"
        if outcome == "not covered":
            lines = ["not covered: digests of a shape that is made from an address"]
        report(str(case.get("id")), lines, limit)
        counts[outcome] += 1
    print(f"{len(manifest['cases'])} cases: " +
          ", ".join(f"{count} {word}" for word, count in counts.items() if count))
    return 2 if counts["unusable"] else 1 if counts["differs"] else 0


def report(name, lines, limit):
    for line in lines[:limit]:
        print(f"{name}: {line}")
    if len(lines) > limit:
        print(f"{name}: and {len(lines) - limit} more")


def evaluate_dump(tensors, metadata, wanted=None):
    """What `hisa eval --all` should write for an input file."""
    name = metadata.get("indexer", "hisa").replace("-", "_")
    refuse_if(name not in ("hisa", "dsa", "block_sparse"), f"indexer is {name}")
    keys = ("block_size", "block_topk", "topk_tokens", "rank", "strict")
    params = {key: metadata[key] for key in keys if key in metadata}
    out = OPS[name](Call(tensors, params, wanted))
    if "x" in tensors:
        out.update(quantize(Call(tensors, {"strict": params.get("strict")})))
    return out


def confirm_dump(source, result, limit):
    tensors, metadata = read_safetensors(source)
    try:
        want = evaluate_dump(tensors, metadata)
    except Refused as refusal:
        there = os.path.exists(result)
        print(f"{source}: refused: {refusal}" + ("; yet there is an output" if there else ""))
        return 1 if there else 0
    got, _ = read_safetensors(result)
    lines = [f"{name}: not expected here" for name in got if name not in want]
    for name, tensor in want.items():
        lines += differences(name, got.get(name), tensor)
    report(source, lines, limit)
    print(f"{source}: {len(want)} tensors, {len(lines)} differences")
    return 1 if lines else 0


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("fixtures", nargs="?", help="folder with manifest.json")
    parser.add_argument("--dump", nargs=2, metavar=("IN", "OUT"))
    parser.add_argument("--limit", type=int, default=20, help="lines for each case (20)")
    options = parser.parse_args(arguments)
    if bool(options.dump) == bool(options.fixtures):
        parser.error("name a folder or --dump IN OUT")
    try:
        if options.dump:
            return confirm_dump(*options.dump, options.limit)
        return confirm_fixtures(options.fixtures, options.limit)
    except (Unusable, OSError, LookupError, ValueError, TypeError, AttributeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
