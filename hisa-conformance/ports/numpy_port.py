"""The whole indexer in numpy, every stage exact (docs/SPEC.md): a port to start from.

    hisa run --port "python3 numpy_port.py"
    hisa run --port "python3 numpy_port.py --scores f32"

The second line takes scores in f32, as most kernels do, and declares that.
"""

import os
import sys

# Several ports run beside one another; threads of a matrix product would only be in the way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import hisa_port
import numpy_scores
from hisa_port import Refused
from numpy_inputs import (
    SIZE_MAX,
    block_windows,
    count_blocks,
    same,
    sizes,
    strict,
    windows,
    windows_of,
)
from numpy_pooling import append, block_pool, pooled, quantize

LAST = np.iinfo(np.int64).max  # the place of what is not eligible
KEYS_MAX = 1 << 22  # pairs of a row and a key at a time


def queries(inputs, params):
    q, weights = inputs["q"], inputs["weights"]
    same("q and weights", q.shape[:2], weights.shape)
    return q, weights


# 3 block_scores


def block_scores(inputs, params, out):
    (q, weights), k = queries(inputs, params), inputs["pooled_k"]
    (b,) = sizes(params, "block_size")
    same("q and pooled_k", q.shape[2], k.shape[1])
    same("pooled_k and pooled_scale", len(k), len(inputs["pooled_scale"]))
    strict(params, q=q, weights=weights)
    ks, ke = windows_of(inputs, params.get("keys", len(k) * b), len(q))
    wanted = in_window(len(k), *block_windows(ks, ke, b))
    made = numpy_scores.score(q, weights, k, inputs["pooled_scale"], wanted)
    return {"block_scores": made}


def in_window(count, first, end):
    at = np.arange(count)
    return (at >= first) & (at < end)


# 4 block_mask


def block_mask(inputs, params, out):
    scores = inputs["block_scores"]
    (b,) = sizes(params, "block_size")
    ks, ke = windows_of(inputs, params.get("keys", scores.shape[1] * b), len(scores))
    return {"block_mask": masked(scores, *block_windows(ks, ke, b))}


def masked(scores, first, end):
    blocks = np.arange(scores.shape[1])
    ends = ((blocks == first) | (blocks == end - 1)) & (first < end)
    outside = (blocks < first) | (blocks >= end)
    # On the bits, because a NaN has to keep its payload.
    bits = np.where(outside, np.int32(-0x800000), scores.view(np.int32))
    return np.where(ends, np.int32(0x7F800000), bits).view(np.float32)


# 5 block_topk


def block_topk(inputs, params, out):
    scores = inputs["block_mask"]
    b, m = sizes(params, "block_size", "block_topk")
    check_slots(m, b)
    ks, ke = windows_of(inputs, params.get("keys", scores.shape[1] * b), len(scores))
    return {"block_ids": best_blocks(scores, *block_windows(ks, ke, b), m, params.rank)}


def check_slots(m, b):
    if m * b > SIZE_MAX:
        raise Refused(f"block_topk * block_size is {m * b}, above {SIZE_MAX}")


def best_blocks(scores, first, end, m, rank):
    """The chosen blocks in ascending order, then -1 (SPEC 5)."""
    if rank == "bf16":
        scores = hisa_port.bf16_round(scores)
    elif rank != "f32":
        raise Refused(f"rank is {rank!r}; allowed are bf16 and f32")
    blocks = np.arange(scores.shape[1])
    place = places(scores, blocks, (blocks >= first) & (blocks < end))
    place[(blocks == first) & (first < end)] = -LAST
    place[(blocks == end - 1) & (first < end)] = -LAST - 1
    ids = best(place, m)
    ids[ids < 0] = SIZE_MAX
    ids.sort(axis=1)
    ids[ids == SIZE_MAX] = -1
    return ids


def places(scores, positions, eligible):
    """One int64 per score, the best the least: the order V.5, then the lower position."""
    bits = scores.view(np.int32).astype(np.int64)
    value = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)
    value[np.isnan(scores)] = -(1 << 31)
    return np.where(eligible, (~value << 31) + positions, LAST)


def best(place, count):
    """The columns of the `count` least of each row, the least first, -1 behind eligible ones."""
    columns = place.shape[1]
    if count < columns // 4:
        some = np.argpartition(place, count - 1, axis=1)[:, :count]
        order = np.argsort(np.take_along_axis(place, some, axis=1), axis=1)
        order = np.take_along_axis(some, order, axis=1)
    else:
        order = np.argsort(place, axis=1)[:, :count]
    ids = np.full((len(place), count), -1, np.int32)
    found = np.take_along_axis(place, order, axis=1) != LAST
    ids[:, : order.shape[1]] = np.where(found, order, -1)
    return ids


# 6 token_scores


def token_scores(inputs, params, out):
    (q, weights), k, k_scale = queries(inputs, params), inputs["k"], inputs["k_scale"]
    ids = inputs["block_ids"]
    (b,) = sizes(params, "block_size")
    same("q and k", q.shape[2], k.shape[1])
    same("k and k_scale", len(k), len(k_scale))
    check_ids(ids, len(q), count_blocks(len(k), b), b)
    strict(params, q=q, k=k, k_scale=k_scale, weights=weights)
    ks, ke = windows_of(inputs, len(k), len(q))
    keys, eligible = slot_keys(ids, b, ks, ke)
    # Each key once, however many rows and slots want it.
    some, at = np.unique(keys[eligible], return_inverse=True)
    row = np.nonzero(eligible)[0]
    wanted = np.zeros((len(q), len(some)), bool)
    wanted[row, at] = True
    made = numpy_scores.score(q, weights, k[some], k_scale[some], wanted)
    scores = np.full(keys.shape, -np.inf, np.float32)
    scores[eligible] = made[row, at]
    return {"token_scores": scores}


def check_ids(ids, rows, blocks, b):
    """Block ids given by a caller (SPEC 6.3)."""
    same("rows and block_ids", rows, len(ids))
    check_slots(ids.shape[1], b)
    bad = (ids < -1) | (ids >= blocks)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        allowed = f"allowed are -1 and 0..{blocks}"
        raise Refused(f"block_ids[{row}, {column}] is {ids[row, column]}; {allowed}")
    order = np.sort(ids, axis=1)
    twice = ((order[:, 1:] == order[:, :-1]) & (order[:, 1:] >= 0)).any(axis=1)
    if twice.any():
        row, seen = int(np.argmax(twice)), set()
        for column, block in enumerate(ids[row].tolist()):
            if block in seen:
                raise Refused(f"block_ids[{row}, {column}] repeats block {block}")
            seen.update([block] if block >= 0 else [])


def slot_keys(ids, b, ks, ke):
    """The key of every slot, and whether the row sees it (SPEC 6.1, 7.1)."""
    blocks = np.repeat(ids.astype(np.int64), b, axis=1)
    keys = blocks * b + np.arange(blocks.shape[1]) % b
    return keys, (blocks >= 0) & (keys >= ks) & (keys < ke)


# 7 token_topk


def token_topk(inputs, params, out):
    scores, ids = inputs["token_scores"], inputs["block_ids"]
    b, count = sizes(params, "block_size", "topk_tokens")
    same("token_scores and slots", scores.shape, (len(ids), ids.shape[1] * b))
    ks, ke = windows_of(inputs, params.get("keys", SIZE_MAX), len(ids))
    check_ids(ids, len(scores), blocks_known(params, b), b)
    keys, eligible = slot_keys(ids, b, ks, ke)
    return {"slots": best(places(scores, keys, eligible), count)}


def blocks_known(params, b):
    return count_blocks(params.get("keys", SIZE_MAX), b)


# 8 index_map


def index_map(inputs, params, out):
    slots, ids = inputs["slots"].astype(np.int64), inputs["block_ids"]
    (b,) = sizes(params, "block_size")
    same("slots and block_ids", len(slots), len(ids))
    ks, ke = windows_of(inputs, params.get("keys", SIZE_MAX), len(ids))
    check_ids(ids, len(slots), blocks_known(params, b), b)
    limit = ids.shape[1] * b
    check_at(slots, (slots < -1) | (slots >= limit), lambda *_: f"; allowed are -1 and 0..{limit}")
    column, valid = np.where(slots < 0, 0, slots // b), slots >= 0
    blocks = np.take_along_axis(ids, column, axis=1).astype(np.int64) if limit else slots
    check_at(
        slots,
        valid & (blocks < 0),
        lambda row, at: f", which lies in block column {column[row, at]}, a -1",
    )
    keys = blocks * b + slots % b
    check_at(
        slots,
        valid & ((keys < ks) | (keys >= ke)),
        lambda row, at: f", key {keys[row, at]}, outside the window [{ks[row, 0]}, {ke[row, 0]})",
    )
    return {"indices": np.where(valid, keys - ks, -1).astype(np.int32)}


def check_at(slots, bad, tell):
    if bad.any():
        row, at = np.argwhere(bad)[0].tolist()
        raise Refused(f"slots[{row}, {at}] is {slots[row, at]}{tell(row, at)}")


# 9 whole indexers


def indexer_inputs(inputs, params):
    (q, weights), k, k_scale = queries(inputs, params), inputs["k"], inputs["k_scale"]
    same("q and k", q.shape[2], k.shape[1])
    same("k and k_scale", len(k), len(k_scale))
    strict(params, q=q, k=k, k_scale=k_scale, weights=weights)
    return q, weights, k, k_scale, *windows_of(inputs, len(k), len(q))


def chosen_blocks(q, weights, k, k_scale, ks, ke, b, m, rank):
    """Stages 2 to 5."""
    pool = pooled(k, k_scale, b)
    first, end = block_windows(ks, ke, b)
    wanted = in_window(len(pool["pooled_k"]), first + 1, end - 1)  # the ends are forced
    scores = numpy_scores.score(q, weights, *pool.values(), wanted)
    return best_blocks(masked(scores, first, end), first, end, m, rank)


def hisa(inputs, params, out):
    b, m, count = sizes(params, "block_size", "block_topk", "topk_tokens")
    check_slots(m, b)
    tensors = indexer_inputs(inputs, params)
    q, weights, k, k_scale, ks, ke = tensors
    blocks = count_blocks(len(k), b)
    ids = chosen_blocks(*tensors, b, min(m, max(blocks, 1)), params.rank)
    indices = np.full((len(q), count), -1, np.int32)
    step = max(1, KEYS_MAX // max(1, len(k)))
    for at in range(0, len(q), step):
        tile = slice(at, at + step)
        eligible = chosen_keys(ids[tile], b, ks[tile], ke[tile], len(k))
        some = np.nonzero(eligible.any(axis=0))[0]
        eligible = eligible[:, some]
        scores = numpy_scores.score(q[tile], weights[tile], k[some], k_scale[some], eligible)
        found = best(places(scores, some, eligible), count)
        keys = some[found] if len(some) else found
        indices[tile] = np.where(found < 0, -1, keys - ks[tile])
    return {"indices": indices}


def chosen_keys(ids, b, ks, ke, n):
    """Which of all keys a row sees in its chosen blocks."""
    chosen = np.zeros((len(ids), count_blocks(n, b) + 1), bool)  # the last column takes the -1
    np.put_along_axis(chosen, ids.astype(np.int64), True, axis=1)
    keys = np.arange(n)
    return chosen[:, keys // b] & (keys >= ks) & (keys < ke)


def dsa(inputs, params, out):
    (count,) = sizes(params, "topk_tokens")
    q, weights, k, k_scale, ks, ke = indexer_inputs(inputs, params)
    keys = np.arange(len(k))
    visible = (keys >= ks) & (keys < ke)
    scores = numpy_scores.score(q, weights, k, k_scale, visible)
    found = best(places(scores, keys, visible), count)
    return {"flat_scores": scores, "indices": np.where(found < 0, -1, found - ks).astype(np.int32)}


def block_sparse(inputs, params, out):
    b, count = sizes(params, "block_size", "topk_tokens")
    m = count_blocks(count, b)
    check_slots(m, b)
    tensors = indexer_inputs(inputs, params)
    ks, ke = tensors[-2:]
    ids = chosen_blocks(*tensors, b, m, params.rank)
    keys, visible = slot_keys(ids, b, ks, ke)
    order = np.sort(np.where(visible, keys, LAST), axis=1)
    indices = np.where(order == LAST, -1, order - ks).astype(np.int32)
    return {"block_ids": ids, "indices": indices}


STAGES = {
    function.__name__: function
    for function in (
        windows,
        quantize,
        block_pool,
        block_scores,
        block_mask,
        block_topk,
        token_scores,
        token_topk,
        index_map,
        append,
        hisa,
        dsa,
        block_sparse,
    )
}


def main(arguments):
    scores = "exact"
    if arguments == ["--scores", "f32"]:
        numpy_scores.head_sums, scores = numpy_scores.f32_head_sums, "bounded:exact"
    elif arguments:
        sys.exit("usage: numpy_port.py [--scores f32]")
    numerics = {"quantize": "exact", "block_pool": "exact", "scores": scores}
    limits = {"H": 1 << 16, "D": 1 << 16, "N": 1 << 26}  # what sums stay exact for
    hisa_port.serve(STAGES, name="numpy", numerics=numerics, limits=limits, batch=256)


if __name__ == "__main__":
    main(sys.argv[1:])
