"""The rounding helpers and the exact scores and means against fractions."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import hisa_port
import numpy_pooling
import numpy_scores
import numpy_rounding as rounding


def rn32(value):
    """A fraction rounded once to f32, by comparing it with the f32 numbers around it."""
    if value < 0:
        return np.float32(0) - rn32(-value)
    largest = Fraction(2) ** 128 - Fraction(2) ** 103
    if value >= largest:
        return np.float32(np.inf)
    bits = int(np.float32(min(float(value), float(np.finfo(np.float32).max))).view(np.int32))
    around = np.array([max(bits - 1, 0), bits, bits + 1], np.int32).view(np.float32)
    finite = [f for f in around if np.isfinite(f)]
    best = min(finite, key=lambda f: (abs(Fraction(float(f)) - value), int(f.view(np.int32)) & 1))
    return best


def f32_bits(rng, count):
    """Finite f32 of every exponent, with few or many set bits."""
    bits = rng.integers(0, 0x7F800000, count, dtype=np.uint32)
    bits &= ~((np.uint32(1) << rng.integers(0, 24, count, dtype=np.uint32)) - np.uint32(1))
    return (bits | rng.integers(0, 2, count, dtype=np.uint32) << np.uint32(31)).view(np.float32)


def test_products_and_quotients_are_rounded_once():
    rng = np.random.default_rng(1)
    totals = np.ldexp(
        rng.integers(-(2**53), 2**53, 6000) >> rng.integers(0, 53, 6000),
        rng.integers(-300, 200, 6000),
    )
    factors = f32_bits(rng, 6000).astype(np.float64)
    for total, factor, made in zip(totals, factors, rounding.times(totals, factors)):
        wanted = rn32(Fraction(total) * Fraction(factor))
        assert made.view(np.int32) == np.float32(wanted + np.float32(0)).view(np.int32)
    divisors = (rng.integers(1, 2**26, 6000) >> rng.integers(0, 26, 6000)) + 1.0
    for total, divisor, made in zip(totals, divisors, rounding.over(totals, divisors)):
        wanted = rn32(Fraction(total) / Fraction(divisor))
        assert made.view(np.int32) == np.float32(wanted + np.float32(0)).view(np.int32)


def test_ties_and_their_neighbours_are_rounded_once():
    # 2^24 + 1 is a tie in f32; products a little beside it are the tie in f64.
    hidden = 0
    for multiple in range(1, 4000, 2):
        product = Fraction(2**24 + 1) * 2**24 + Fraction(1, 2**20)
        factor = np.float32(1 + multiple * 2.0**-23)
        total = np.array([float(product / Fraction(float(factor)))])
        made = rounding.times(total, np.array([float(factor)]))[0]
        hidden += np.float32(total[0] * float(factor)) != made
        assert made == rn32(Fraction(total[0]) * Fraction(float(factor)))
    assert hidden > 100, "f64 products alone should go wrong here"
    for divisor in range(3, 4000, 2):
        total = np.array([float((2**24 + 1) * divisor * 2**16 + 1)])
        wanted = rn32(Fraction(total[0]) / divisor)
        assert rounding.over(total, float(divisor))[0] == wanted


def test_fractions_of_integers_round_once():
    rng = np.random.default_rng(2)
    for _ in range(3000):
        size = int(rng.integers(1, 400))
        numerator = int.from_bytes(rng.bytes(50), "little") >> (400 - size)
        denominator = 1 << int(rng.integers(0, 320))
        denominator *= int(rng.integers(1, 1 << 20))
        wanted = rn32(Fraction(numerator, denominator))
        made = rounding.to_f32(np.array([rounding.fraction(-numerator, denominator)]))[0]
        assert made == -wanted, (numerator, denominator)


def test_what_lies_far_below_a_tie_decides():
    """2^24 + 1 is a tie, and f64 has no room for 2^-40 beside it."""
    far, one = np.array([2**24, 1, 2.0**-40, 0], np.float32), np.ones((1, 4, 1), np.uint8) * 0x38
    made = numpy_scores.score(
        one, far[None], one[0, :1], np.ones(1, np.float32), np.ones((1, 1), bool)
    )
    assert made[0, 0] == 2**24 + 2
    assert numpy_pooling.means(one, far[None])[0, 0] == 2**22 + 0.5
    far[2] = -far[2]
    assert numpy_pooling.means(one, far[None])[0, 0] == 2**22
    for sign in (1, -1):
        value = rounding.fraction(sign * (((2**24 + 1) << 80) + 1), 1 << 80)
        assert rounding.to_f32(np.array([value]))[0] == sign * (2**24 + 2)


@pytest.mark.parametrize("heads", [2, 5, 64])
def test_sums_that_almost_cancel(heads):
    """What is left of large terms is far below the error of their f64 sum."""
    rng = np.random.default_rng(heads)
    q, k = some_codes(rng, (40, heads, 9), "any") & 0x7E, some_codes(rng, (3, 9), "any") & 0x7E
    q[:, 1::2] = q[:, ::2][:, : heads // 2]
    weights = some_f32(rng, (40, heads), "wide")
    weights[:, 1::2] = -weights[:, ::2][:, : heads // 2]
    weights[:, 0] = np.nextafter(weights[:, 0], np.float32(np.inf))
    made = numpy_scores.score(q, weights, k, np.ones(3, np.float32), np.ones((40, 3), bool))
    for row, column in np.ndindex(40, 3):
        wanted = np.float32(fraction_score(q[row], weights[row], k[column], 1) + np.float32(0))
        assert made[row, column].view(np.int32) == wanted.view(np.int32)


@pytest.mark.parametrize("overflow", ["saturating", "non-saturating"])
def test_a_computed_nan_has_one_code(overflow):
    x = np.array([[-np.nan, -1], [-np.inf, -1], [np.inf, 0]], np.float32)
    params = hisa_port.Params(strict=False, overflow=overflow)
    made = numpy_pooling.quantize({"x": x}, params, {})
    assert made["codes"].tolist() == [[0x7F, 0x7F], [0x7F, 0x80], [0x7F, 0x00]]
    params["scale_format"] = "ue8m0"
    made = numpy_pooling.quantize({"x": x}, params, {})
    large = [0x7E, 0xFE] if overflow == "saturating" else [0x7F, 0xFF]
    assert made["codes"].tolist() == [[0x7F, 0x7F], [large[1], 0x80], [large[0], 0x00]]


def test_lowest_bits():
    values = np.array([1, 3, 0.75, 2.0**-149, 2.0**-126, 12, 0, np.inf, np.nan, -6], np.float32)
    assert rounding.lowest_bit(values).tolist() == [0, 0, -2, -149, -126, 2, 999, 999, 999, 1]


def test_codes_decode_as_ml_dtypes_does():
    codes = np.arange(256, dtype=np.uint8)
    wanted = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert np.array_equal(hisa_port.e4m3_decode(codes), wanted, equal_nan=True)


def test_encoding_agrees_with_ml_dtypes_on_f32():
    rng = np.random.default_rng(3)
    steps = np.sort(hisa_port._STEPS.astype(np.float32))
    near = [steps, np.nextafter(steps, np.float32(0)), np.nextafter(steps, np.float32(np.inf))]
    values = np.concatenate([*near, f32_bits(rng, 20000), rng.uniform(0, 500, 20000)])
    values = np.concatenate([values, [0, np.inf, np.nan]]).astype(np.float32)
    values = np.concatenate([values, -values])
    wanted = values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert np.array_equal(hisa_port.e4m3_encode(values, "non-saturating"), wanted)
    saturated = hisa_port.e4m3_encode(values)
    finite = wanted & 0x7F != 0x7F
    assert np.array_equal(saturated[finite], wanted[finite])
    large = np.where(np.signbit(values), 0xFE, 0x7E)[~finite]
    assert np.array_equal(saturated[~finite], np.where(np.isnan(values[~finite]), 0x7F, large))


def test_bf16_agrees_with_ml_dtypes():
    rng = np.random.default_rng(4)
    any_bits = rng.integers(0, 2**32, 20000, np.uint32).view(np.float32)
    values = np.concatenate([f32_bits(rng, 20000), any_bits])
    wanted = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    made = hisa_port.bf16_round(values)
    assert np.array_equal(made, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(made[made == 0]), np.signbit(wanted[made == 0]))
    halves = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(hisa_port.bf16_decode(halves), wanted, equal_nan=True)


def fraction_score(q, weights, key, scale):
    values = hisa_port.E4M3
    total = Fraction(0)
    for row, weight in zip(q, weights):
        dot = sum(Fraction(float(values[a])) * Fraction(float(values[b])) for a, b in zip(row, key))
        total += Fraction(float(weight)) * max(dot, 0)
    return rn32(total * Fraction(float(scale)))


def some_codes(rng, shape, kind):
    codes = rng.integers(0, 256, shape, np.uint8)
    codes[codes & 0x7F == 0x7F] = 0x38
    return codes & (0x87 if kind == "small" else 0xFF) | (0x38 if kind == "ones" else 0)


def some_f32(rng, shape, kind):
    count = int(np.prod(shape))
    if kind == "wide":
        values = f32_bits(rng, count)
    elif kind == "ties":
        values = rng.choice([1, -1, 2**24, -(2**24), 2.0**-24, 1 + 2.0**-23, 3], count)
    else:
        values = rng.normal(size=count)
    return values.astype(np.float32).reshape(shape)


@pytest.mark.parametrize("kind", ["wide", "ties", "plain"])
@pytest.mark.parametrize("heads, d", [(1, 1), (3, 5), (8, 128)])
def test_exact_scores_against_fractions(kind, heads, d):
    rng = np.random.default_rng(heads * 100 + d)
    for codes in ("any", "small", "ones"):
        q = some_codes(rng, (6, heads, d), codes) & 0x7E
        k = some_codes(rng, (7, d), codes) & 0x7E
        weights = some_f32(rng, (6, heads), kind)
        scale = some_f32(rng, 7, kind)
        made = numpy_scores.score(q, weights, k, scale, np.ones((6, 7), bool))
        for row, column in np.ndindex(6, 7):
            wanted = fraction_score(q[row], weights[row], k[column], scale[column])
            wanted = np.float32(wanted + np.float32(0))
            assert made[row, column].view(np.int32) == wanted.view(np.int32)


@pytest.mark.parametrize("kind", ["wide", "ties", "plain"])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 128])
def test_means_against_fractions(kind, count):
    rng = np.random.default_rng(count)
    k = some_codes(rng, (4, count, 3), "any") & 0xFE
    scales = np.abs(some_f32(rng, (4, count), kind))
    made = numpy_pooling.means(k, scales)
    for block, dim in np.ndindex(4, 3):
        products = zip(k[block, :, dim], scales[block])
        total = sum(Fraction(float(hisa_port.E4M3[c])) * Fraction(float(s)) for c, s in products)
        wanted = np.float32(rn32(total / count) + np.float32(0))
        assert made[block, dim].view(np.int32) == wanted.view(np.int32)
