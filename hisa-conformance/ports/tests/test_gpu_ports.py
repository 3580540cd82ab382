"""The adapters of TileLang's example and of DeepGEMM with right kernels in place of theirs.

What an adapter does by itself is then all that can be wrong. No GPU, no library, no checkout.
"""

import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is missing: pip install torch")

import deepgemm_port  # noqa: E402
import hisa_port  # noqa: E402
import spec_examples  # noqa: E402
import tilelang_port  # noqa: E402
import torch_hisa  # noqa: E402

CPU = torch.device("cpu")
F8 = torch.float8_e4m3fn


def codes(tensor):
    assert tensor.dtype == F8
    return tensor.view(torch.uint8)


def pool(k, k_scale, block):
    pooled_k, pooled_scale = torch_hisa.block_pool(codes(k), k_scale, block)
    return pooled_k.view(F8), pooled_scale


def block_scores(q, k, scale, weights, first, last):
    assert first.dtype == last.dtype == torch.int32
    return torch_hisa.flat_scores(codes(q), weights, codes(k), scale)


def mask(scores, first, last):
    masked = torch_hisa.block_mask(scores, first.long(), last.long(), 1)
    return scores.copy_(masked)


def token_scores(q, k, k_scale, ids, block, weights, ks, ke):
    assert ids.dtype == torch.int64 and (ids >= 0).all()
    tensors = codes(q), weights, codes(k), k_scale, ids, ks.long(), ke.long()
    return torch_hisa.token_scores(*tensors, block)


def cast(x, dims, ue8m0):
    assert dims == (0,)
    made, scale = torch_hisa.quantize(x, "ue8m0" if ue8m0 else "f32")
    return made.view(F8), scale.squeeze()


def filled(ids, blocks):
    """-1 replaced by blocks that are not chosen, as torch.topk over -inf does."""
    rows = []
    for row in ids.tolist():
        spare = [block for block in range(blocks) if block not in row]
        rows.append([spare.pop() if block < 0 else block for block in row])
    return torch.tensor(rows)


class Example(types.SimpleNamespace):
    """hisa.py of the example: looks its functions up when it runs, and leaves columns out."""

    def hisa_indexer(
        self, q, k, k_scale, weights, ks, ke, *, k_block_size, block_topk, topk_tokens
    ):
        pooled = self.fp8_native_block_mean_pooling_interface(k, k_scale, k_block_size)
        first, last = ks // k_block_size, (ke + k_block_size - 1) // k_block_size
        scores = self.pool_mqa_attn_return_logits_fp8_interface(q, *pooled, weights, first, last)
        self.clean_and_maintain_logits_interface(scores, first, last)
        count = min(block_topk, scores.shape[1])
        bounds = ks.long(), ke.long()
        ids = torch_hisa.block_topk(scores, *bounds, k_block_size, count, "bf16").flip(1)
        score = self.fp8_native_block_sparse_mqa_attn_return_logits_interface
        full = filled(ids, scores.shape[1])
        scores = score(q, k, k_scale, full, k_block_size, weights, ks, ke)
        count = min(topk_tokens, scores.shape[1])
        slots = torch_hisa.token_topk(scores, ids, *bounds, k_block_size, count)
        return torch_hisa.index_map(slots, ids, bounds[0], k_block_size)


def example():
    modules = {
        "fp8_block_mean_pooling": {"fp8_native_block_mean_pooling_interface": pool},
        "pool_mqa_fp8": {"pool_mqa_attn_return_logits_fp8_interface": block_scores},
        "clean_and_maintain_logits": {"clean_and_maintain_logits_interface": mask},
        "block_sparse_mqa_fp8": {
            "fp8_native_block_sparse_mqa_attn_return_logits_interface": token_scores
        },
    }
    every = {name: made for functions in modules.values() for name, made in functions.items()}
    modules = {name: types.SimpleNamespace(**made) for name, made in modules.items()}
    modules["hisa"] = Example(**every)
    modules["tilelang_utils"] = types.SimpleNamespace(per_custom_dims_cast_to_fp8=cast)
    return tilelang_port.Port(torch, CPU, modules).functions()


def mqa_logits(q, kv, weights, ks, ke, clean_logits):
    """DeepGEMM's: rows of a wider tensor, -inf outside the windows where asked for."""
    assert ks.dtype == ke.dtype == torch.int32
    assert (ks <= ke).all(), "the kernel subtracts without a sign"
    scores = torch_hisa.flat_scores(codes(q), weights, codes(kv[0]), kv[1])
    wide = torch.full((scores.shape[0], scores.shape[1] + 256), 5.0)
    wide[:, : scores.shape[1]] = scores
    if clean_logits:
        ids = torch.arange(wide.shape[1])
        wide[(ids < ks[:, None]) | (ids >= ke[:, None])] = -torch.inf
    return wide[:, : scores.shape[1]]


def deep_gemm(clean):
    library = types.SimpleNamespace(fp8_mqa_logits=mqa_logits)
    return deepgemm_port.Port(torch, CPU, library, clean=clean).functions()


TILELANG = example()
# Those the interface has no words for; windows and their errors are the checkout's own.
SKIPPED = {"hisa-no-keys"}


def calls(functions):
    for made in spec_examples.read(functions):
        permissive = made.get("params", {}).get("strict") is False
        f32 = made.get("params", {}).get("rank") == "f32"
        kept = "dims" in made.get("params", {})
        skip = "error" in made or permissive or f32 or kept or made["name"] in SKIPPED
        if not skip and made["stage"] != "windows":
            yield made


def in_window(ids, inputs, params):
    bounds = zip(inputs["ks"].tolist(), inputs["ke"].tolist())
    block = params.block_size
    seen = [range(s // block, -(-e // block) if s < e else 0) for s, e in bounds]
    return [sorted(set(row) & set(blocks)) for row, blocks in zip(ids.tolist(), seen)]


def run(functions, made):
    stage = made["stage"]
    params = hisa_port.Params({**spec_examples.DEFAULTS, **made.get("params", {})})
    inputs = spec_examples.inputs(made)
    shapes = hisa_port.output_shapes(stage, inputs, params)
    out = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    got = functions[stage](inputs, params, out)
    for name in hisa_port.OUTPUTS[stage]:
        if name not in made["expect"]:
            continue
        expected, result = spec_examples.tensor(name, made["expect"][name]), got[name]
        assert result.dtype == expected.dtype and result.shape == shapes[name]
        if name == "block_ids":  # in any order, filled up with blocks outside (SPEC 5.5)
            chosen = [in_window(ids, inputs, params) for ids in (result, expected)]
            assert chosen[0] == chosen[1], made["name"]
            continue
        if name == "block_scores":
            result = np.where(np.isneginf(expected), expected, result)
        np.testing.assert_array_equal(result, expected, err_msg=f"{made['name']}: {name}")


@pytest.mark.parametrize("made", list(calls(TILELANG)), ids=lambda made: made["name"])
def test_tilelang(made):
    run(TILELANG, made)


def test_the_example_is_whole_again_after_block_topk():
    port = tilelang_port.Port(torch, CPU, {"hisa": Example(**{n: n for n in NAMES})})
    inputs = {"block_mask": np.zeros((1, 4), np.float32)}
    inputs |= {"ks": np.array([0], np.int32), "ke": np.array([8], np.int32)}
    params = hisa_port.Params(block_size=2, block_topk=6, rank="bf16")
    made = port.block_topk(inputs, params, {})["block_ids"]
    assert sorted(made[0]) == [-1, -1, 0, 1, 2, 3]
    assert vars(port.modules["hisa"]) == {name: name for name in NAMES}


NAMES = (
    "fp8_native_block_mean_pooling_interface",
    "pool_mqa_attn_return_logits_fp8_interface",
    "clean_and_maintain_logits_interface",
    "fp8_native_block_sparse_mqa_attn_return_logits_interface",
)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("made", list(calls({"dsa": None})), ids=lambda made: made["name"])
def test_deepgemm(made, clean):
    run(deep_gemm(clean), made)


def test_deepgemm_rows_that_see_nothing():
    made = {
        "name": "empty", "stage": "dsa", "params": {"topk_tokens": 2},
        "q": [[["0x38"]]] * 3, "weights": [[1]] * 3, "k": [["0x38"]] * 2, "k_scale": [1, 2],
        "ks": [2147483647, 2, 0], "ke": [0, 1, 2],
        "expect": {
            "flat_scores": [["-inf", "-inf"], ["-inf", "-inf"], [1, 2]],
            "indices": [[-1, -1], [-1, -1], [1, 0]],
        },
    }  # fmt: skip
    for clean in (True, False):
        run(deep_gemm(clean), made)


def test_a_checkout_that_is_none_is_refused_in_one_line(tmp_path):
    with pytest.raises(SystemExit, match="no fp8_block_mean_pooling.py there"):
        tilelang_port.load(str(tmp_path))
