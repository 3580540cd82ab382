"""Windows from offsets against the formulas of SPEC W, row by row."""

import numpy as np
import pytest

import hisa_port
import numpy_port
from hisa_port import Params, Refused


def by_rows(cu_q, cu_k, stride, first):
    rows = []
    for s in range(len(cu_q) - 1):
        len_q, len_k = cu_q[s + 1] - cu_q[s], cu_k[s + 1] - cu_k[s]
        for i in range(len_q):
            if stride is None:
                seen = max(i + 1 + len_k - len_q, 0)
            else:
                seen = (first[s] + i + 1) // stride
            rows.append((cu_k[s], min(cu_k[s] + seen, cu_k[s + 1])))
    return rows


def offsets(rng, count):
    return [0, *np.cumsum(rng.integers(0, 7, count)).tolist()]


@pytest.mark.parametrize("seed", range(200))
def test_random_offsets(seed):
    rng = np.random.default_rng(seed)
    form, count = seed % 4, int(rng.integers(0, 5))
    cu_q, cu_k, stride, first = offsets(rng, count), offsets(rng, count), None, [0] * count
    inputs, params = {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k}, Params()
    if form == 0:
        cu_k, inputs = cu_q, {"cu_seqlens": cu_q}
    if form >= 2:
        stride = params["kv_stride"] = int(rng.integers(1, 4))
        if rng.random() < 0.5:
            first = params["first_positions"] = rng.integers(0, 9, count).tolist()
    if form == 3:
        cu_k = [0, *np.cumsum(np.diff(cu_q) // stride).tolist()]
        inputs = {"cu_seqlens_q": cu_q}
    wanted = by_rows(cu_q, cu_k, stride, first)
    if len(wanted) % 4 == 0 and rng.random() < 0.5:
        rank, c = int(rng.integers(2)), len(wanted) // 4
        params.update(cp_rank=rank, cp_ranks=2)
        wanted = wanted[rank * c : (rank + 1) * c] + wanted[(3 - rank) * c : (4 - rank) * c]
    padding = int(rng.integers(3))
    params.update(rows=len(wanted) + padding, keys=cu_k[-1])
    wanted += [(2**31 - 1, 0)] * padding
    dtype = rng.choice([np.int32, np.int64])
    inputs = {name: np.array(value, dtype) for name, value in inputs.items()}
    made = hisa_port.call(numpy_port.windows, "windows", inputs, params)
    assert list(zip(made["ks"].tolist(), made["ke"].tolist())) == wanted


@pytest.mark.parametrize(
    "inputs, params",
    [
        ({"cu_seqlens": []}, {}),
        ({"cu_seqlens": [1, 2]}, {}),
        ({"cu_seqlens": [0, 2, 1]}, {}),
        ({"cu_seqlens": [0, 2**31]}, {}),
        ({"cu_seqlens": [0, 2]}, {"rows": 1}),
        ({"cu_seqlens": [0, 2]}, {"keys": 3}),
        ({"cu_seqlens": [0, 4]}, {"cp_rank": 2, "cp_ranks": 2}),
        ({"cu_seqlens": [0, 4]}, {"cp_rank": -1, "cp_ranks": 2}),
        ({"cu_seqlens_q": [0, 2]}, {}),
        ({"cu_seqlens_q": [0, 2], "cu_seqlens_k": [0, 1, 2]}, {}),
        ({"cu_seqlens_q": [0, 2]}, {"kv_stride": 0}),
        ({"cu_seqlens_q": [0, 2]}, {"kv_stride": 1, "first_positions": [1, 2]}),
    ],
)
def test_what_is_refused(inputs, params):
    inputs = {name: np.array(value, np.int64) for name, value in inputs.items()}
    with pytest.raises(Refused):
        numpy_port.windows(inputs, Params(params), {})
