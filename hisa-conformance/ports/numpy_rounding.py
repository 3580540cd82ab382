"""Real results rounded once to f32 (SPEC V.6), from sums in f64.

An exact sum is multiplied with rounding to odd: the last bit of the f64 product keeps whether
anything was cut off, so that the rounding to f32 behind it is the only one (Boldo and Melquiond,
2008). Where a sum is only known within a bound, both ends of its interval are rounded; where they
differ, integers of any length decide. No f64 operation here overflows or underflows: what it sees
lies between 2^-400 and 2^400.
"""

import numpy as np

NAN = np.uint32(0x7FC00000).view(np.float32)
UNIT = 2.0**149  # every f32 is an integer multiple of 1 / UNIT


def to_f32(values):
    """f64 to f32: rounded, zero is +0.0 and NaN has one pattern (SPEC V.4, V.8)."""
    with np.errstate(all="ignore"):
        rounded = values.astype(np.float32) + np.float32(0)
    rounded[np.isnan(rounded)] = NAN
    return rounded


def times(total, factor):
    """`total * factor` rounded once, for exact f64 totals and factors that are f32 numbers."""
    with np.errstate(all="ignore"):
        product = total * factor
        high = (total.view(np.int64) & np.int64(-1 << 27)).view(np.float64)  # 26 bits
        cut = (high * factor - product) + (total - high) * factor
        return to_f32(_odd(product, cut))


def over(total, divisor):
    """`total / divisor` rounded once, for exact f64 totals and a divisor of 1 to 2^26.

    The f64 quotient decides as the real one does. Let `m`, 25 bits, be where f32 rounding changes:
    `m * divisor` has 51 bits, so where it is not `total` it is at least a last bit of `total` away,
    more than 2^-53 of it. The f64 rounding of the quotient moves by no more than that.
    """
    with np.errstate(all="ignore"):
        return to_f32(total / divisor)


def between(low, high):
    """The f32 both ends round to, and whether they round to one."""
    low, high = to_f32(low), to_f32(high)
    return low, low.view(np.int32) == high.view(np.int32)


def fraction(numerator, denominator):
    """The f64, cut to odd at some 60 bits, of a quotient of two Python integers."""
    size = abs(numerator)
    shift = 50 - size.bit_length() + denominator.bit_length()
    if shift >= 0:
        quotient, rest = divmod(size << shift, denominator)
    else:
        quotient, rest = divmod(size, denominator << -shift)
    value = float(quotient | (rest != 0)) * 2.0**-shift
    return -value if numerator < 0 else value


def lowest_bit(values):
    """The exponent of the lowest set bit of each f32; 999 for zero and what is not finite."""
    bits = values.view(np.int32)
    field, fraction = bits >> 23 & 0xFF, bits & 0x7FFFFF
    mantissa = np.where(field == 0, fraction, fraction | 0x800000)
    lowest = np.frexp((mantissa & -mantissa).astype(np.float32))[1] - 1
    exponent = np.maximum(field, 1) - 150 + lowest
    return np.where((mantissa == 0) | (field == 0xFF), 999, exponent)


def _odd(values, rest):
    """`values`, those with a `rest` that their rounding cut off moved towards it to be odd."""
    bits = values.view(np.int64)
    even = (bits & 1 == 0) & (rest != 0) & np.isfinite(values)
    outward = (rest > 0) == (values > 0)
    return (bits + even * np.where(outward, 1, -1)).view(np.float64)
