"""What a call may hold, and who sees what: values, sizes and windows (SPEC V and W)."""

import numpy as np

from hisa_port import E4M3, Refused

SIZE_MAX = 2**31 - 1


def sizes(params, *names):
    """Parameters that have to be 1 or more (SPEC V.9)."""
    values = [getattr(params, name) for name in names]
    for name, value in zip(names, values):
        if value < 1 or value > SIZE_MAX:
            raise Refused(f"{name} is {value}; allowed are 1 to {SIZE_MAX}")
    return values


def strict(params, **tensors):
    """The values that strict mode refuses (SPEC V.7): `k` are codes, `k_scale` scales."""
    if not params.strict:
        return
    for name, tensor in tensors.items():
        if tensor.dtype == np.uint8:
            bad = tensor & 0x7F == 0x7F
        else:
            bad = ~np.isfinite(tensor)
            if name == "k_scale":
                bad |= tensor < 0
        if bad.any():
            at = np.argwhere(bad)[0].tolist()
            value = (E4M3[tensor] if tensor.dtype == np.uint8 else tensor)[tuple(at)]
            text = "NaN" if np.isnan(value) else f"{value:g}"
            raise Refused(f"{name}{at} is {text}")


def same(what, *lengths):
    if len(set(lengths)) != 1:
        raise Refused(f"{what} differ in shape: {', '.join(map(str, lengths))}")


def windows_of(inputs, n, rows):
    """`ks[M, 1]` and `ke[M, 1]` as int64, checked (SPEC W.2), empty rows as (0, 0) (W.1)."""
    ks, ke = inputs["ks"].astype(np.int64), inputs["ke"].astype(np.int64)
    same("ks and ke", ks.shape, ke.shape)
    same("rows and windows", rows, len(ks))
    empty = ks >= ke
    bad = ~empty & ((ks < 0) | (ke > n))
    if bad.any():
        row = int(np.argmax(bad))
        raise Refused(f"row {row}: window [{ks[row]}, {ke[row]}) is not within the keys [0, {n})")
    return np.where(empty, 0, ks)[:, None], np.where(empty, 0, ke)[:, None]


def block_windows(ks, ke, b):
    """First block and the one after the last (SPEC W.3)."""
    return ks // b, -(-ke // b)


def count_blocks(n, b):
    return -(-n // b)


def windows(inputs, params, out):
    """Offsets of sequences to one window per row (SPEC W.4 to W.8)."""
    causal = "cu_seqlens" in inputs
    cu_q = offsets(inputs, "cu_seqlens" if causal else "cu_seqlens_q")
    stride, positions = params.get("kv_stride"), params.get("first_positions") or []
    len_q = np.diff(cu_q)
    if stride is not None and stride < 1:
        raise Refused(f"kv_stride is {stride}")
    if causal:
        cu_k = cu_q
    elif "cu_seqlens_k" in inputs:
        cu_k = offsets(inputs, "cu_seqlens_k")
    elif stride is not None:
        cu_k = np.append(0, np.cumsum(len_q // stride))
    else:
        raise Refused("cu_seqlens_k is missing")
    same("cu_seqlens_q and cu_seqlens_k", len(cu_q), len(cu_k))
    same("the end of cu_seqlens_k and keys", cu_k[-1], params.get("keys", cu_k[-1]))
    sequence = np.repeat(np.arange(len(len_q)), len_q)
    row = np.arange(cu_q[-1]) - cu_q[sequence] if len(sequence) else sequence
    ks, end = cu_k[:-1][sequence], cu_k[1:][sequence]
    if stride is None:
        ke = ks + row + 1 + (end - ks) - len_q[sequence]
    else:
        first = np.zeros(len(len_q), np.int64)
        if len(positions):
            same("sequences and first_positions", len(first), len(positions))
            first[:] = positions
        ke = ks + (first[sequence] + row + 1) // stride
    bounds = np.stack([ks, np.clip(ke, ks, end)], axis=1)
    bounds = padded(held(bounds, params), params)
    return {"ks": bounds[:, 0].astype(np.int32), "ke": bounds[:, 1].astype(np.int32)}


def offsets(inputs, name):
    cu = inputs[name].astype(np.int64)
    if len(cu) == 0:
        raise Refused(f"{name} has no entry")
    if cu[0] != 0:
        raise Refused(f"{name}[0] is {cu[0]}")
    down = np.diff(cu) < 0
    if down.any():
        at = int(np.argmax(down)) + 1
        raise Refused(f"{name}[{at}] is {cu[at]}, below its predecessor {cu[at - 1]}")
    if cu[-1] > SIZE_MAX:
        raise Refused(f"{name}[{len(cu) - 1}] is {cu[-1]}, above {SIZE_MAX}")
    return cu


def held(bounds, params):
    """The rows of one context-parallel rank (SPEC W.7)."""
    rank, ranks, rows = params.get("cp_rank"), params.get("cp_ranks"), len(bounds)
    if ranks is None:
        return bounds
    if not 0 <= rank < ranks:
        raise Refused(f"cp_rank is {rank}; allowed are 0 to {ranks - 1}")
    if rows % (2 * ranks):
        raise Refused(f"{rows} rows do not split into 2 x {ranks} equal chunks")
    chunks = bounds.reshape(2 * ranks, rows // (2 * ranks), 2)
    return np.concatenate([chunks[rank], chunks[2 * ranks - 1 - rank]])


def padded(bounds, params):
    """Rows of no sequence behind the others (SPEC W.8)."""
    more = (params.get("rows") or len(bounds)) - len(bounds)
    if more < 0:
        raise Refused(f"rows is {params.rows}, but the offsets stand for {len(bounds)}")
    return np.concatenate([bounds, np.broadcast_to([SIZE_MAX, 0], (more, 2))])
