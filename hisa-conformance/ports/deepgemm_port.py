#!/usr/bin/env python3
"""DeepGEMM's fp8_mqa_logits as the flat indexer: its scores, and torch's selection from them.

    hisa run --port 'python3 deepgemm_port.py'

On Hopper it takes 32 or 64 heads of 32, 64 or 128 dimensions. What differs from docs/SPEC.md:

  -inf       outside the windows is written by clean_logits, or by the port with --no-clean
  windows    the kernel computes end - start without a sign: a row that sees nothing is handed over
             as [0, 0), unless --raw-windows
  M = 0, N = 0   not taken: there is no tensor map without rows
  NaN        fmaxf(NaN, 0) is 0: not asked, unless --permissive

Declared is the class of its dots, hopper-qgmma, with any order over heads. --model declares the
model of its epilogue instead, bit for bit: products fused into the sums as nvcc does by default.
"""

import argparse
import sys

import torch_device  # first: it says in one line what is missing

import hisa_port

BOUNDED = "bounded:hopper-qgmma"
MODEL = "model:hopper-qgmma+deepgemm-sm90+fma+fmax"
LIMITS = {"H": [32, 64], "D": [32, 64, 128]}


def load():
    """deep_gemm; ends the process with one line where it is missing."""
    try:
        import deep_gemm
    except (ImportError, AssertionError, OSError) as error:
        sys.exit(f"deep_gemm is missing ({error!r}): pip install sgl-deep-gemm==0.1.4")
    if not hasattr(deep_gemm, "fp8_mqa_logits"):
        sys.exit(f"deep_gemm in {deep_gemm.__file__} has no fp8_mqa_logits")
    return deep_gemm


class Port(torch_device.Transfers):
    """The stage function, bound to a device and to the library."""

    def __init__(self, torch, device, deep_gemm, clean=True, raw_windows=False):
        super().__init__(torch, device)
        import torch_hisa

        self.ops, self.deep_gemm = torch_hisa, deep_gemm
        self.clean, self.raw_windows = clean, raw_windows

    def functions(self):
        return self.guarded({"dsa": self.dsa})

    def dsa(self, inputs, params, out):
        (m, n), count = out["flat_scores"].shape, params.topk_tokens
        if m == 0 or n == 0:
            raise hisa_port.Unsupported(f"M = {m}, N = {n}: no tensor map without rows")
        q, k, k_scale, weights, ks, ke = self.put(
            inputs, "q", "k", "k_scale", "weights", "ks", "ke"
        )
        codes, empty = self.torch.float8_e4m3fn, ks >= ke
        start, end = ks, ke
        if not self.raw_windows:
            start, end = ks.masked_fill(empty, 0), ke.masked_fill(empty, 0)
        self.leave(out)
        scores = self.deep_gemm.fp8_mqa_logits(
            q.view(codes),
            (k.view(codes), k_scale),
            weights,
            start,
            end,
            clean_logits=self.clean,
        )
        ks, ke = ks.long(), ke.long()
        if not self.clean:
            ids = self.torch.arange(n, device=self.device)
            seen = (ids >= ks[:, None]) & (ids < ke[:, None])
            scores = scores.masked_fill(~seen, -self.torch.inf)
        scores = scores.contiguous()
        indices = self.ops.flat_topk(scores, ks, ke, count)
        return self.take(flat_scores=scores, indices=indices)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="store_true", help=f"declare {MODEL}")
    parser.add_argument("--no-clean", action="store_true", help="call with clean_logits=False")
    parser.add_argument("--raw-windows", action="store_true", help="hand empty windows on as given")
    parser.add_argument("--permissive", action="store_true", help="take NaN and infinities too")
    given = parser.parse_args()
    hisa_port.claim_stdout()
    torch, device = torch_device.load_hopper("DeepGEMM's arithmetic")
    port = Port(torch, device, load(), not given.no_clean, given.raw_windows)
    hisa_port.serve(
        port.functions(),
        name="deepgemm fp8_mqa_logits",
        numerics={"scores": MODEL if given.model else BOUNDED},
        limits=LIMITS,
        permissive=given.permissive,
    )


if __name__ == "__main__":
    main()
