#!/usr/bin/env python3
"""The TileLang example dsa_hisa, by its own functions, from a checkout of yours.

    hisa run --port 'python3 tilelang_port.py --checkout /src/tilelang/examples/dsa_hisa'

What differs between its interface and docs/SPEC.md, and what the port does about it:

  rows, keys   kernels are compiled for each M and N: the sizes taken are those of --rows, --keys
  H, D, B, m   part of the kernels as well: --heads, --dims, --block-sizes, --block-topk
  windows      of blocks, made as hisa.py makes them: floor(ks / B), floor((ke + B - 1) / B)
  -1           its block ids have none: the column is scored as block 0 and overwritten with -inf
  columns      hisa.py returns min(K, m * B), and has min(m, Nb) blocks: the rest is filled with -1
  block order  any (torch.topk, unsorted), which SPEC 5.5 allows
  rank         bf16 only
  scores       outside a block window whatever the kernel left, which SPEC 3.2 allows
  dtypes       int64 block ids; quantize drops dimensions of size 1 from its scales
  NaN          its README says nothing of it: not asked, unless --permissive

block_topk is a line of hisa_indexer, and is run by it: the functions around that line are replaced
for the call. token_topk and index_map are run by `hisa` alone. Declared are the arithmetic its
README describes (f32 pooling and quantising) and that of its kernels (wgmma on e4m3, f32 head
sums, --use_fast_math).
"""

import argparse
import os
import sys

import torch_device  # first: it says in one line what is missing

import hisa_port

NUMERICS = {"quantize": "f32", "block_pool": "f32+ftz", "scores": "bounded:hopper-qgmma+ftz"}
FILES = (
    "hisa",
    "fp8_block_mean_pooling",
    "pool_mqa_fp8",
    "clean_and_maintain_logits",
    "block_sparse_mqa_fp8",
    "tilelang_utils",
)
INSIDE = os.path.join("examples", "dsa_hisa")


def load(checkout):
    """The checkout's modules by name; ends the process with one line where they are missing."""
    folders = [checkout, os.path.join(checkout, INSIDE)]
    found = [f for f in folders if os.path.exists(os.path.join(f, f"{FILES[1]}.py"))]
    if not found:
        sys.exit(f"--checkout {checkout}: no {FILES[1]}.py there, nor in {INSIDE}")
    try:
        import tilelang  # noqa: F401
    except ImportError as error:
        sys.exit(f"tilelang is missing ({error}): pip install tilelang")
    sys.path.insert(0, found[0])
    return {name: __import__(name) for name in FILES}


class Chosen(Exception):
    """Carries the block ids out of hisa_indexer."""


class Port(torch_device.Transfers):
    """The stage functions, bound to a device and to a checkout's modules."""

    STAGES = (
        "windows",
        "quantize",
        "block_pool",
        "block_scores",
        "block_mask",
        "block_topk",
        "token_scores",
        "hisa",
    )

    def __init__(self, torch, device, modules):
        super().__init__(torch, device)
        self.modules = modules

    def functions(self):
        """By name, in the order of the stages."""
        return self.guarded({name: getattr(self, name) for name in self.STAGES})

    def put(self, inputs, *names):
        """As `Transfers.put`, with codes as float8_e4m3fn."""
        codes = self.torch.float8_e4m3fn
        tensors = super().put(inputs, *names)
        return [t.view(codes) if t.dtype == self.torch.uint8 else t for t in tensors]

    def codes(self, tensor):
        return tensor.view(self.torch.uint8)

    def columns(self, ids, count):
        """Ids with -1 in the columns that the example leaves out."""
        missing = count - ids.shape[1]
        return self.torch.nn.functional.pad(ids, (0, missing), value=-1)

    def windows(self, inputs, params, out):
        if "ks" in inputs or params.get("cp_ranks") is not None:
            raise hisa_port.Unsupported("the example has no function for rows and ranks")
        utils, long = self.modules["tilelang_utils"], self.torch.int64
        offsets = {n: t.to(long) for n, t in zip(inputs, self.put(inputs, *inputs))}
        cu_q = offsets.get("cu_seqlens", offsets.get("cu_seqlens_q"))
        cu_k, stride = offsets.get("cu_seqlens_k"), params.get("kv_stride")
        rows = params.get("rows", int(cu_q[-1]))
        if stride is not None or rows != int(cu_q[-1]):
            ks, ke = self.strided(cu_q, cu_k, stride, rows, params)
        elif cu_k is None:
            ks, ke = utils.prepare_ks_ke_from_cu_seqlens(cu_q)
        else:
            ks, ke = utils.prepare_ks_ke_from_cu_seqlens_qk(cu_q, cu_k)
        return self.take(ks=ks, ke=ke)

    def strided(self, cu_q, cu_k, stride, rows, params):
        """Windows by the helpers that know strides and padding rows."""
        utils = self.modules["tilelang_utils"]
        if stride is None and cu_k is not None:
            raise hisa_port.Unsupported("no helper pads windows of separate offsets")
        stride = 1 if stride is None else stride
        if cu_k is None:
            ends = (cu_q.diff() // stride).cumsum(0)
            cu_k = self.torch.cat([ends.new_zeros(1), ends])
        starts = self.torch.zeros_like(cu_q[:-1])
        if params.get("first_positions"):
            starts = starts + self.torch.tensor(params["first_positions"], device=self.device)
        bounds = cu_q[:-1], cu_q[1:], cu_k[:-1]
        ks = utils.cal_cu_seqlen_ks_for_q(*bounds, rows)
        ke = utils.cal_cu_seqlen_ke_for_q(*bounds, cu_k[1:], starts, rows, stride)
        return ks, ke

    def quantize(self, inputs, params, out):
        (x,) = self.put(inputs, "x")
        cast = self.modules["tilelang_utils"].per_custom_dims_cast_to_fp8
        codes, scale = cast(x, (0,), params.scale_format == "ue8m0")
        return self.take(codes=self.codes(codes), scale=scale.reshape(-1))

    def block_pool(self, inputs, params, out):
        k, k_scale = self.put(inputs, "k", "k_scale")
        pool = self.modules["fp8_block_mean_pooling"].fp8_native_block_mean_pooling_interface
        self.leave(out)
        pooled_k, pooled_scale = pool(k, k_scale, params.block_size)
        return self.take(pooled_k=self.codes(pooled_k), pooled_scale=pooled_scale)

    def blocks(self, inputs, params):
        """Windows of blocks, as hisa.py makes them."""
        ks, ke = self.put(inputs, "ks", "ke")
        block = params.block_size
        return ks // block, (ke + block - 1) // block

    def block_scores(self, inputs, params, out):
        q, weights, k, scale = self.put(inputs, "q", "weights", "pooled_k", "pooled_scale")
        score = self.modules["pool_mqa_fp8"].pool_mqa_attn_return_logits_fp8_interface
        return self.take(block_scores=score(q, k, scale, weights, *self.blocks(inputs, params)))

    def block_mask(self, inputs, params, out):
        (scores,) = self.put(inputs, "block_scores")
        mask = self.modules["clean_and_maintain_logits"].clean_and_maintain_logits_interface
        return self.take(block_mask=mask(scores, *self.blocks(inputs, params)))

    def block_topk(self, inputs, params, out):
        self.only_bf16(params)
        scores, ks, ke = self.put(inputs, "block_mask", "ks", "ke")
        hisa = self.modules["hisa"]

        def chosen(q, k, k_scale, block_ids, *rest):
            raise Chosen(block_ids)

        around = {
            "fp8_native_block_mean_pooling_interface": lambda *rest: (None, None),
            "pool_mqa_attn_return_logits_fp8_interface": lambda *rest: scores,
            "clean_and_maintain_logits_interface": lambda *rest: None,
            "fp8_native_block_sparse_mqa_attn_return_logits_interface": chosen,
        }
        kept = {name: getattr(hisa, name) for name in around}
        vars(hisa).update(around)
        try:
            self.indexer(None, None, None, None, ks, ke, {**params, "topk_tokens": 1})
        except Chosen as result:
            ids = result.args[0]
        finally:
            vars(hisa).update(kept)
        return self.take(block_ids=self.columns(ids, params.block_topk))

    def indexer(self, q, k, k_scale, weights, ks, ke, params):
        return self.modules["hisa"].hisa_indexer(
            q,
            k,
            k_scale,
            weights,
            ks,
            ke,
            k_block_size=params["block_size"],
            block_topk=params["block_topk"],
            topk_tokens=params["topk_tokens"],
        )

    def token_scores(self, inputs, params, out):
        names = ("q", "k", "k_scale", "block_ids", "weights", "ks", "ke")
        q, k, k_scale, ids, weights, ks, ke = self.put(inputs, *names)
        block, absent = params.block_size, ids < 0
        score = self.modules["block_sparse_mqa_fp8"]
        score = score.fp8_native_block_sparse_mqa_attn_return_logits_interface
        ids = ids.masked_fill(absent, 0).to(self.torch.int64)
        self.leave(out)
        scores = score(q, k, k_scale, ids, block, weights, ks, ke)
        scores.masked_fill_(absent.repeat_interleave(block, dim=1), -self.torch.inf)
        return self.take(token_scores=scores)

    def hisa(self, inputs, params, out):
        self.only_bf16(params)
        tensors = self.put(inputs, "q", "k", "k_scale", "weights", "ks", "ke")
        indices = self.indexer(*tensors, params)
        return self.take(indices=self.columns(indices, params.topk_tokens))

    def only_bf16(self, params):
        if params.rank != "bf16":
            raise hisa_port.Unsupported("the example ranks block scores as bf16")


def sizes(text):
    return [int(size) for size in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    about = "dsa_hisa, or its repository"
    parser.add_argument("--checkout", required=True, metavar="PATH", help=about)
    for name, letter, default in (
        ("rows", "M", "33,64"),
        ("keys", "N", "1000,2048"),
        ("heads", "H", "64"),
        ("dims", "D", "128"),
        ("block-sizes", "B", "128"),
        ("block-topk", "m", "8"),
    ):
        about = f"sizes of {letter} to take (default: {default})"
        parser.add_argument(f"--{name}", dest=letter, type=sizes, default=default, help=about)
    parser.add_argument("--permissive", action="store_true", help="take NaN and infinities too")
    return parser.parse_args()


def main():
    given = arguments()
    hisa_port.claim_stdout()
    torch, device = torch_device.load_hopper("the example's arithmetic")
    port = Port(torch, device, load(given.checkout))
    hisa_port.serve(
        port.functions(),
        name="tilelang dsa_hisa",
        numerics=NUMERICS,
        limits={letter: getattr(given, letter) for letter in "MNHDBm"},
        permissive=given.permissive,
    )


if __name__ == "__main__":
    main()
