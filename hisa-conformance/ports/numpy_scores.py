"""The scoring rule (SPEC S): exact, and in f32 for comparison."""

import numpy as np

import hisa_port
import numpy_rounding as rounding

FINITE = np.nan_to_num(hisa_port.E4M3.astype(np.float64))  # NaN codes are dealt with apart
ELEMENTS_MAX = 1 << 22  # of a temporary array


def score(q, weights, k, k_scale, wanted):
    """The scores (SPEC S.1) that `wanted[M, N]` asks for, `-inf` elsewhere, in tiles of rows."""
    (m, h, d), n = q.shape, len(k)
    scores = np.full((m, n), -np.inf, np.float32)
    keys, k_nan = FINITE[k].T, (k & 0x7F == 0x7F).any(axis=1)
    step = max(1, ELEMENTS_MAX // max(1, h * max(d, n)))
    for at in range(0, m, step):
        tile = slice(at, at + step)
        codes = q[tile]
        # A dot is an integer below 2^53 in units of 2^-18, and so is every partial sum: exact.
        dots = (FINITE[codes].reshape(-1, d) @ keys).reshape(len(codes), h, n)
        np.maximum(dots, 0, out=dots)
        rows, columns = np.nonzero(wanted[tile])
        made = head_sums(dots, weights[tile], k_scale, rows, columns)
        q_nan = (codes & 0x7F == 0x7F).any(axis=(1, 2))
        made[q_nan[rows] | k_nan[columns]] = rounding.NAN
        scores[at + rows, columns] = made
    return scores


def exact_head_sums(dots, weights, k_scale, rows, columns):
    """The scores of pairs of a row and a key, rounded once, from clamped dots `[M, H, N]`."""
    h, w, factor = dots.shape[1], weights.astype(np.float64), k_scale[columns].astype(np.float64)
    with np.errstate(all="ignore"):
        if np.isfinite(w).all():
            total = np.matmul(w[:, None, :], dots)[:, 0][rows, columns]
            size = np.matmul(np.abs(w)[:, None, :], dots)[:, 0][rows, columns]
        else:  # matrix products need not keep 0 * inf
            terms = w[:, :, None] * dots
            total = terms.sum(axis=1)[rows, columns]
            size = np.abs(terms).sum(axis=1)[rows, columns]
        slack = size * ((h + 8) * 2.0**-53)
        made, sure = rounding.between((total - slack) * factor, (total + slack) * factor)
    unsure = np.nonzero(~sure)[0]
    if len(unsure) == 0:
        return made
    total, rows, columns = total[unsure], rows[unsure], columns[unsure]
    made[unsure] = rounding.times(total, factor[unsure])
    # Every term is a multiple of 2^-18 times the lowest bit of a weight.
    lowest = rounding.lowest_bit(weights).min(axis=1)[rows]
    exact = size[unsure] < np.ldexp(1.0, np.minimum(lowest + 34, 999))
    for at in np.nonzero(~exact & np.isfinite(total))[0].tolist():
        row, column = rows[at], columns[at]
        made[unsure[at]] = integer_score(dots[row, :, column], w[row], float(k_scale[column]))
    return made


def integer_score(dots, weights, factor):
    """One score in integers of any length."""
    units, dots = (weights * rounding.UNIT).tolist(), (dots * 2.0**18).tolist()
    total = sum(int(unit) * int(dot) for unit, dot in zip(units, dots))
    if np.isfinite(factor):
        value = rounding.fraction(total * int(factor * rounding.UNIT), 1 << (149 + 18 + 149))
    else:
        value = ((total > 0) - (total < 0)) * factor
    return rounding.to_f32(np.array([value]))[0]


def f32_head_sums(dots, weights, k_scale, rows, columns):
    """The same in f32: dots rounded once, heads added in numpy's order."""
    with np.errstate(all="ignore"):
        total = np.einsum("mh,mhn->mn", weights, dots.astype(np.float32))
        return rounding.to_f32(total[rows, columns] * k_scale[columns])


head_sums = exact_head_sums
