"""Codes and scales: quantize, block_pool and append (SPEC 1, 2 and 9.5), all exact."""

import numpy as np

import hisa_port
import numpy_rounding as rounding
from hisa_port import Refused
from numpy_inputs import same, sizes, strict

VALUES = hisa_port.E4M3.astype(np.float64)
ELEMENTS_MAX = 1 << 22  # of a temporary array


def quantize(inputs, params, out):
    x, dims = inputs["x"], params.get("dims", [0])
    if x.dtype == np.uint16:
        x = hisa_port.bf16_decode(x)
    for at, dim in enumerate(dims):
        if dim in dims[:at] or not 0 <= dim < x.ndim:
            raise Refused(f"dims: entry {at} is {dim}; dims must be distinct and below {x.ndim}")
    strict(params, x=x)
    others = tuple(dim for dim in range(x.ndim) if dim not in dims)
    amax = np.max(np.abs(x), axis=others, keepdims=True, initial=np.float32(1e-4))
    scale = rounding.to_f32(amax.astype(np.float64) / 448)
    if params.scale_format == "ue8m0":
        bits = scale.view(np.uint32)
        exponent = np.minimum((bits >> 23) + (bits & 0x7FFFFF != 0), 254)
        power = (exponent << 23).astype(np.uint32).view(np.float32)
        scale = np.where(np.isnan(scale), scale, power)
    with np.errstate(all="ignore"):
        quotient = x / scale.astype(np.float64)
    codes = hisa_port.e4m3_encode(quotient, params.overflow)
    codes[np.isnan(quotient)] = 0x7F
    return {"codes": codes, "scale": scale.reshape([x.shape[dim] for dim in sorted(dims)])}


def block_pool(inputs, params, out):
    k, k_scale = inputs["k"], inputs["k_scale"]
    (b,) = sizes(params, "block_size")
    same("k and k_scale", len(k), len(k_scale))
    strict(params, k=k, k_scale=k_scale)
    return pooled(k, k_scale, b)


def pooled(k, k_scale, b):
    """Blocks of `b` keys, in tiles of whole blocks; the last block by itself (SPEC 2)."""
    (n, d), parts = k.shape, []
    full = n // b * b
    step = max(1, ELEMENTS_MAX // (b * d)) * b
    for at in range(0, full, step):
        end = min(at + step, full)
        parts.append(pool_equal(k[at:end].reshape(-1, b, d), k_scale[at:end].reshape(-1, b)))
    if full < n or not parts:
        rest = n - full
        shape = (1 if rest else 0, rest, d)
        parts.append(pool_equal(k[full:].reshape(shape), k_scale[full:].reshape(shape[:2])))
    codes, scales = zip(*parts)
    return {"pooled_k": np.concatenate(codes), "pooled_scale": np.concatenate(scales)}


def pool_equal(k, k_scale):
    """Blocks of equally many keys, `k[blocks, keys, D]`."""
    mean = means(k, k_scale)
    amax = np.max(np.abs(mean), axis=1, initial=np.float32(0))
    scale = np.maximum(rounding.to_f32(amax.astype(np.float64) / 448), np.float32(1e-10))
    with np.errstate(all="ignore"):
        quotient = mean / scale.astype(np.float64)[:, None]
    return hisa_port.e4m3_encode(quotient), scale


def means(k, k_scale):
    """The means of SPEC 2.2, rounded once, f32 `[blocks, D]`."""
    blocks, count, d = k.shape
    with np.errstate(all="ignore"):
        products = VALUES[k] * k_scale.astype(np.float64)[:, :, None]  # 42 bits: exact
        total, size = products.sum(axis=1), np.abs(products).sum(axis=1)
        slack = size * ((count + 8) * 2.0**-53)
        mean, sure = rounding.between((total - slack) / count, (total + slack) / count)
    if sure.all():
        return mean
    unsure = np.nonzero(~sure)
    mean[unsure] = rounding.over(total[unsure], float(count))
    # Every product is a multiple of 2^-9 times the lowest bit of a scale.
    lowest = rounding.lowest_bit(k_scale).min(axis=1, initial=999)
    exact = size < np.ldexp(1.0, np.minimum(lowest + 43, 999))[:, None]
    for block, dim in np.argwhere(~sure & ~exact & np.isfinite(total)):
        codes = (VALUES[k[block, :, dim]] * 512).tolist()
        scales = (k_scale[block].astype(np.float64) * rounding.UNIT).tolist()
        numerator = sum(int(code) * int(scale) for code, scale in zip(codes, scales))
        value = rounding.fraction(numerator, count << 158)
        mean[block, dim] = rounding.to_f32(np.array([value]))[0]
    return mean


def append(inputs, params, out):
    """Keys that arrive in pieces, with roll-backs (SPEC 9.5); only touched blocks are pooled."""
    k, k_scale = inputs["k"], inputs["k_scale"]
    (b,) = sizes(params, "block_size")
    same("k and k_scale", len(k), len(k_scale))
    strict(params, k=k, k_scale=k_scale)
    cache = pooled(k[:0], k_scale[:0], b)
    held_k, held_scale = k[:0], k_scale[:0]
    for start, keys in steps(params.pieces, len(k)):
        held_k = np.concatenate([held_k[:start], k[keys]])
        held_scale = np.concatenate([held_scale[:start], k_scale[keys]])
        kept = start // b
        fresh = pooled(held_k[kept * b :], held_scale[kept * b :], b)
        cache = {name: np.concatenate([cache[name][:kept], fresh[name]]) for name in cache}
    return cache


def steps(pieces, n):
    """What each piece does: keys kept, and the keys appended. A place that a later roll-back
    gives up holds the key as far from the end until then (docs/PROTOCOL.md)."""
    held = 0
    for at, end in enumerate(pieces):
        kept, start = min(pieces[at:]), min(held, end)
        places = np.arange(start, min(end, n))
        yield start, np.where(places < kept, places, n - 1 - places)
        held = end
