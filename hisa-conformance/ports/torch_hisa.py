"""The stages of docs/SPEC.md in plain torch operations, on any device.

Codes are uint8, ids int64, `[ks, ke)` int64. Dots are taken in f64, where they are exact: a product
of two codes is a multiple of 2^-18 and below 2^18, so a sum of 65,536 of them has 52 bits. Heads
are summed one after another in f64, element by element, so that a score does not depend on what
else is scored in the same call.
"""

import torch

BUDGET = {"cpu": 1 << 24, "cuda": 1 << 28}  # f64 elements of one chunk of rows
PLACES = 1 << 31  # ids are below it
LAST = -(1 << 62)  # below every place


# Values


def decode(codes):
    """Codes to f64, NaN codes included (SPEC V.1)."""
    return codes.view(torch.float8_e4m3fn).to(torch.float32).to(torch.float64)


def _steps(device):
    """`steps[c]` is the least f64 that encodes to a code above `c`, saturation left aside."""
    values = decode(torch.arange(127, dtype=torch.uint8, device=device))
    values = torch.cat([values, values.new_tensor([480.0])])
    middles = (values[:-1] + values[1:]) / 2
    odd = torch.arange(127, device=device) % 2 == 1  # a tie goes up exactly from an odd code
    above = torch.nextafter(middles, torch.full_like(middles, torch.inf))
    return torch.where(odd, middles, above)


def encode(values, overflow="saturating"):
    """f64 to codes, rounded once (SPEC V.2); NaN becomes 0x7F."""
    codes = torch.bucketize(values.abs(), _steps(values.device), right=True).to(torch.uint8)
    if overflow == "saturating":
        codes = codes.clamp(max=0x7E)
    codes = codes | (values.signbit().to(torch.uint8) << 7)
    return codes.masked_fill(values.isnan(), 0x7F)


def to_f32(values):
    """f64 rounded to f32, with one zero and one NaN (SPEC V.4, V.8)."""
    values = values.to(torch.float32) + 0.0
    return values.masked_fill(values.isnan(), torch.nan)


def rank_key(scores):
    """f32 to int64 that orders as SPEC V.5 does: zeros equal, every NaN last."""
    bits = scores.view(torch.int32).to(torch.int64)
    magnitude = bits & 0x7FFF_FFFF
    key = torch.where(bits < 0, -magnitude, magnitude)
    return key.masked_fill(scores.isnan(), -0x7F80_0001)


def _tree_sum(terms):
    """Sum over dimension 1, by halves: the order does not depend on the other dimensions."""
    while terms.shape[1] > 1:
        if terms.shape[1] % 2:
            terms = torch.cat([terms, torch.zeros_like(terms[:, :1])], dim=1)
        half = terms.shape[1] // 2
        terms = terms[:, :half] + terms[:, half:]
    return terms[:, 0]


# Stages 1 and 2


def quantize(x, scale_format="f32", overflow="saturating"):
    """Codes and scales of rows `x[rows, D]` (SPEC 1). Exact."""
    floor = x.new_tensor(1e-4)
    amax = x.abs().amax(dim=1) if x.shape[1] else floor.expand(x.shape[0])
    scale = to_f32(torch.maximum(amax, floor).double() / 448)
    if scale_format == "ue8m0":
        bits = scale.view(torch.int32)
        exponent = (bits >> 23) + (bits & 0x7F_FFFF != 0).to(torch.int32)
        power = (exponent.clamp(1, 254) << 23).view(torch.float32)
        scale = torch.where(scale.isnan(), scale, power)
    codes = encode(x.double() / scale.double()[:, None], overflow)
    return codes.masked_fill(scale.isnan()[:, None], 0x7F), scale


def block_pool(k, k_scale, block):
    """Pooled codes and scales (SPEC 2), with the sum over a block in f64."""
    n, d = k.shape
    blocks = -(-n // block)
    terms = decode(k) * k_scale.double()[:, None]
    padding = terms.new_zeros(blocks * block - n, d)
    total = _tree_sum(torch.cat([terms, padding]).view(blocks, block, d))
    starts = torch.arange(blocks, device=k.device) * block
    count = (n - starts).clamp(max=block)
    mean = to_f32(total / count[:, None])
    amax = mean.abs().amax(dim=1)
    scale = torch.maximum(to_f32(amax.double() / 448), mean.new_tensor(1e-10))
    codes = encode(mean.double() / scale.double()[:, None])
    return codes.masked_fill(scale.isnan()[:, None], 0x7F), scale


def append(k, k_scale, block, pieces):
    """Pooling of keys that come in pieces: each repools from its first unfinished block on."""
    blocks = -(-k.shape[0] // block)
    codes = k.new_zeros(blocks, k.shape[1])
    scale = k_scale.new_zeros(blocks)
    end = 0
    for piece in pieces:
        first, end = end // block, end + piece
        last = -(-end // block)
        if first < last:
            keys = slice(first * block, end)
            codes[first:last], scale[first:last] = block_pool(k[keys], k_scale[keys], block)
    return codes, scale


# Scores


def _weigh(dots, weights, scale):
    """Dots `[rows, H, n]` to scores `[rows, n]` (SPEC S.1)."""
    total = dots.new_zeros(dots.shape[0], dots.shape[2])
    for head in range(dots.shape[1]):
        total += weights[:, head, None].double() * dots[:, head].clamp(min=0)
    return to_f32(total * scale.double())


def _finite(codes):
    """Decoded codes with 0 for NaN, and which of the rows hold a NaN."""
    values = decode(codes)
    return values.nan_to_num(nan=0.0), values.isnan().flatten(1).any(dim=1)


def _chunks(rows, row_elements, device):
    step = max(1, BUDGET[device.type] // max(1, row_elements))
    return [slice(start, start + step) for start in range(0, rows, step)]


def flat_scores(q, weights, k, scale):
    """Scores `[M, N]` of every row against every key."""
    (m, heads, d), n = q.shape, k.shape[0]
    queries, lost = _finite(q)
    keys, lost_keys = _finite(k)
    out = scale.new_empty(m, n)
    for rows in _chunks(m, heads * n, q.device):
        dots = queries[rows].reshape(-1, d) @ keys.T
        out[rows] = _weigh(dots.view(len(out[rows]), heads, n), weights[rows], scale)
    return out.masked_fill(lost[:, None] | lost_keys, torch.nan)


def picked_scores(q, weights, k, scale, picked):
    """Scores `[M, S]` of every row against its keys `picked[M, S]`, all of them in `[0, N)`."""
    (m, heads, d), slots = q.shape, picked.shape[1]
    if k.shape[0] <= slots:
        return flat_scores(q, weights, k, scale).gather(1, picked)
    queries, lost = _finite(q)
    keys, lost_keys = _finite(k)
    out = scale.new_empty(m, slots)
    for rows in _chunks(m, slots * (heads + d), q.device):
        mine = picked[rows]
        dots = queries[rows] @ keys[mine].transpose(1, 2)
        out[rows] = _weigh(dots, weights[rows], scale[mine])
    return out.masked_fill(lost[:, None] | lost_keys[picked], torch.nan)


# Windows


def windows(cu_q, cu_k=None, stride=None, positions=None):
    """`ks` and `ke` of the rows of sequences (SPEC W.4 to W.6); `cu_k` None: made from `cu_q`."""
    length = cu_q.diff()
    if cu_k is None:
        ends = (length // (stride or 1)).cumsum(0)
        cu_k = torch.cat([ends.new_zeros(1), ends])
    rows = torch.arange(int(cu_q[-1]), device=cu_q.device)
    sequence = torch.bucketize(rows, cu_q, right=True) - 1
    seen = rows - cu_q[sequence] + 1
    if stride is None:
        seen = seen + (cu_k.diff() - length)[sequence]
    else:
        first = 0 if positions is None else positions[sequence]
        seen = (first + seen) // stride
    ks = cu_k[sequence]
    return ks, torch.minimum((ks + seen).maximum(ks), cu_k[sequence + 1])


def shard(bounds, rank, ranks):
    """The rows of one context-parallel rank (SPEC W.7)."""
    chunk = bounds.shape[0] // (2 * ranks)
    chunks = bounds.view(2 * ranks, chunk)
    return torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])


# Selection


def block_windows(ks, ke, block):
    """First block and the one past the last, 0 and 0 where a row sees no key (SPEC W.3)."""
    empty = ks >= ke
    first = (ks // block).masked_fill(empty, 0)
    return first, ((ke + block - 1) // block).masked_fill(empty, 0)


def _inside(first, last, count):
    ids = torch.arange(count, device=first.device)
    return (ids >= first[:, None]) & (ids < last[:, None])


def best(keys, ids, eligible, count):
    """Positions of the `count` largest keys of each row, the lower id first among equals, then -1.

    No two places are equal, so every correct sort gives the same answer.
    """
    place = keys * PLACES + (PLACES - 1 - ids)
    place = torch.where(eligible, place, LAST)
    top = place.topk(min(count, place.shape[1]), dim=1)
    positions = torch.where(top.values > LAST, top.indices, -1)
    return torch.nn.functional.pad(positions, (0, count - positions.shape[1]), value=-1)


def ascending(ids):
    """Rows in ascending order, -1 at the end."""
    ids = ids.masked_fill(ids < 0, PLACES).sort(dim=1).values
    return ids.masked_fill(ids == PLACES, -1)


def block_mask(scores, ks, ke, block):
    """Masked block scores (SPEC 4), bits kept."""
    first, last = block_windows(ks, ke, block)
    inside = _inside(first, last, scores.shape[1])
    ids = torch.arange(scores.shape[1], device=scores.device)
    ends = inside & ((ids == first[:, None]) | (ids == last[:, None] - 1))
    bits = scores.view(torch.int32)
    bits = torch.where(ends, 0x7F80_0000, bits)
    return torch.where(inside, bits, -0x0080_0000).to(torch.int32).view(torch.float32)


def block_topk(scores, ks, ke, block, count, rank):
    """Ids of the chosen blocks, ascending, then -1 (SPEC 5)."""
    first, last = block_windows(ks, ke, block)
    inside = _inside(first, last, scores.shape[1])
    keys = rank_key(scores.to(torch.bfloat16).float() if rank == "bf16" else scores)
    ids = torch.arange(scores.shape[1], device=scores.device)
    keys = torch.where(ids == first[:, None], 0x7F80_0001, keys)
    keys = torch.where(ids == last[:, None] - 1, 0x7F80_0002, keys)
    return ascending(best(keys, ids, inside, count))


def slot_keys(block_ids, ks, ke, block):
    """The key of each slot `[M, m * B]`, and whether the row sees it (SPEC 6.1, 7.1)."""
    offsets = torch.arange(block, device=block_ids.device)
    keys = (block_ids[:, :, None] * block + offsets).flatten(1)
    real = (block_ids >= 0).repeat_interleave(block, dim=1)
    return keys, real & (keys >= ks[:, None]) & (keys < ke[:, None])


def token_scores(q, weights, k, k_scale, block_ids, ks, ke, block):
    """Scores of the slots (SPEC 6)."""
    keys, seen = slot_keys(block_ids, ks, ke, block)
    if k.shape[0] == 0:
        return k_scale.new_full(keys.shape, -torch.inf)
    scores = picked_scores(q, weights, k, k_scale, keys.masked_fill(~seen, 0))
    return scores.masked_fill(~seen, -torch.inf)


def token_topk(scores, block_ids, ks, ke, block, count):
    """The best slots, then -1 (SPEC 7)."""
    keys, seen = slot_keys(block_ids, ks, ke, block)
    return best(rank_key(scores), keys, seen, count)


def index_map(slots, block_ids, ks, block):
    """Slots to keys counted from the start of the window (SPEC 8)."""
    slot = slots.clamp(min=0)
    if block_ids.shape[1] == 0:
        return slots
    keys = block_ids.gather(1, slot // block) * block + slot % block
    return torch.where(slots < 0, -1, keys - ks[:, None])


# Whole indexers


def hisa(q, weights, k, k_scale, ks, ke, params):
    """The hierarchical indexer's `indices` (SPEC 9.1)."""
    ids = chosen_blocks(q, weights, k, k_scale, ks, ke, params, params.block_topk)
    block = params.block_size
    scores = token_scores(q, weights, k, k_scale, ids, ks, ke, block)
    slots = token_topk(scores, ids, ks, ke, block, params.topk_tokens)
    return index_map(slots, ids, ks, block)


def chosen_blocks(q, weights, k, k_scale, ks, ke, params, count):
    """Stages 2 to 5."""
    block = params.block_size
    pooled_k, pooled_scale = block_pool(k, k_scale, block)
    scores = flat_scores(q, weights, pooled_k, pooled_scale)
    masked = block_mask(scores, ks, ke, block)
    return block_topk(masked, ks, ke, block, count, params.rank)


def flat_topk(scores, ks, ke, count):
    """`indices` of the flat indexer from scores of all keys (SPEC 9.2)."""
    ids = torch.arange(scores.shape[1], device=scores.device)
    seen = _inside(ks, ke, scores.shape[1])
    keys = best(rank_key(scores), ids, seen, count)
    return torch.where(keys < 0, -1, keys - ks[:, None])


def dsa(q, weights, k, k_scale, ks, ke, count):
    """`flat_scores` and `indices` of the flat indexer (SPEC 9.2)."""
    scores = flat_scores(q, weights, k, k_scale)
    scores = scores.masked_fill(~_inside(ks, ke, k.shape[0]), -torch.inf)
    return scores, flat_topk(scores, ks, ke, count)


def block_sparse(q, weights, k, k_scale, ks, ke, params):
    """`block_ids` and `indices` of the baseline that keeps whole blocks (SPEC 9.3)."""
    count = -(-params.topk_tokens // params.block_size)
    ids = chosen_blocks(q, weights, k, k_scale, ks, ke, params, count)
    keys, seen = slot_keys(ids, ks, ke, params.block_size)
    return ids, ascending(torch.where(seen, keys - ks[:, None], -1))
