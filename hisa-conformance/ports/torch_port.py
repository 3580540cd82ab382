#!/usr/bin/env python3
"""Every stage in plain torch operations, on a CPU or a GPU: a port to start from.

    hisa run --port 'python3 torch_port.py'
    hisa run --port 'python3 torch_port.py --device cuda'

Quantising is exact. Pooling sums in f64 and rounds once, which is within what f32 pooling may be.
Dots are exact in f64, and heads are summed in f64, one after another. No tensor core is used.
"""

import argparse
import sys

import hisa_port

NUMERICS = {"quantize": "exact", "block_pool": "f32", "scores": "bounded:exact"}


def load(device):
    """torch and the device by that name; ends the process with one line where there is none."""
    try:
        import torch
    except ImportError:
        sys.exit("torch is missing: pip install torch")
    if device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit(f"--device {device}: torch {torch.__version__} sees no GPU")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    return torch, torch.device(device)


# Refusals (SPEC V.7, V.10)


def refuse_values(inputs, params, names):
    """Strict mode takes no NaN code, no negative or infinite scale, no infinite weight or `x`."""
    if not params.strict:
        return
    for name in names:
        values = inputs[name]
        if values.dtype == "uint8":
            wrong = values & 0x7F == 0x7F
        else:
            wrong = ~(abs(values) < float("inf"))
            if name == "k_scale":
                wrong |= values < 0
        if wrong.any():
            at = [int(axis[0]) for axis in wrong.nonzero()]
            value = "NaN" if values.dtype == "uint8" else values[tuple(at)]
            raise hisa_port.Refused(f"{name}{at} is {value}")


def refuse_windows(inputs, keys):
    """A row that is not empty lies within the keys (SPEC W.2)."""
    ks, ke = inputs["ks"], inputs["ke"]
    if ks.shape != ke.shape:
        raise hisa_port.Refused(f"ks has {len(ks)} entries, ke {len(ke)}")
    wrong = (ks < ke) & ((ks < 0) | (ke > keys))
    if wrong.any():
        row = int(wrong.argmax())
        why = f"row {row}: window [{ks[row]}, {ke[row]}) is not within the keys [0, {keys})"
        raise hisa_port.Refused(why)


def refuse_block_ids(ids, blocks):
    """Ids are -1 or blocks, each at most once in a row (SPEC 6.3). `blocks` None: unknown."""
    for row, line in enumerate(ids.tolist()):
        valid = [block for block in line if block != -1]
        if any(block < -1 or blocks is not None and block >= blocks for block in valid):
            raise hisa_port.Refused(f"block_ids[{row}] holds an id outside -1 and 0..{blocks}")
        if len(set(valid)) < len(valid):
            raise hisa_port.Refused(f"block_ids[{row}] repeats a block")


def refuse_slots(torch, slots, seen):
    """A slot is -1 or one that its row sees (SPEC 8.3)."""
    width = seen.shape[1]
    wrong = (slots < -1) | (slots >= width)
    if width:
        wrong |= (slots >= 0) & ~seen.gather(1, slots.clamp(0, width - 1))
    if wrong.any():
        row, column = (int(axis[0]) for axis in wrong.nonzero(as_tuple=True))
        raise hisa_port.Refused(f"slots[{row}, {column}] is no slot that the row sees")


class Port:
    """The stage functions, bound to a device."""

    def __init__(self, torch, device):
        import torch_hisa

        self.torch, self.device, self.ops = torch, device, torch_hisa

    def functions(self):
        """By name, in the order of the stages."""
        names = [name for name in hisa_port.OUTPUTS if hasattr(self, name)]
        return {name: getattr(self, name) for name in names}

    def put(self, inputs, *names):
        """Tensors on the device; int32 becomes int64."""
        for name in names:
            tensor = self.torch.from_numpy(inputs[name]).to(self.device)
            yield tensor.long() if tensor.dtype == self.torch.int32 else tensor

    def take(self, **tensors):
        """Outputs back on the host; int64 becomes int32."""
        return {name: self.host(tensor) for name, tensor in tensors.items()}

    def host(self, tensor):
        if tensor.dtype == self.torch.int64:
            tensor = tensor.int()
        return tensor.cpu().numpy()

    def quantize(self, inputs, params, out):
        refuse_values(inputs, params, ["x"])
        (x,) = self.put(inputs, "x")
        codes, scale = self.ops.quantize(x, params.scale_format, params.overflow)
        return self.take(codes=codes, scale=scale)

    def block_pool(self, inputs, params, out):
        refuse_values(inputs, params, ["k", "k_scale"])
        k, k_scale = self.put(inputs, "k", "k_scale")
        pooled_k, pooled_scale = self.ops.block_pool(k, k_scale, params.block_size)
        return self.take(pooled_k=pooled_k, pooled_scale=pooled_scale)

    def append(self, inputs, params, out):
        refuse_values(inputs, params, ["k", "k_scale"])
        k, k_scale = self.put(inputs, "k", "k_scale")
        pooled = self.ops.append(k, k_scale, params.block_size, params.pieces)
        return self.take(pooled_k=pooled[0], pooled_scale=pooled[1])

    def block_scores(self, inputs, params, out):
        refuse_values(inputs, params, ["q", "weights"])
        q, weights, k, scale = self.put(inputs, "q", "weights", "pooled_k", "pooled_scale")
        return self.take(block_scores=self.ops.flat_scores(q, weights, k, scale))

    def block_mask(self, inputs, params, out):
        scores, ks, ke = self.put(inputs, "block_scores", "ks", "ke")
        return self.take(block_mask=self.ops.block_mask(scores, ks, ke, params.block_size))

    def block_topk(self, inputs, params, out):
        scores, ks, ke = self.put(inputs, "block_mask", "ks", "ke")
        sizes = params.block_size, params.block_topk
        return self.take(block_ids=self.ops.block_topk(scores, ks, ke, *sizes, params.rank))

    def token_scores(self, inputs, params, out):
        n, block = len(inputs["k"]), params.block_size
        refuse_windows(inputs, n)
        refuse_block_ids(inputs["block_ids"], -(-n // block))
        refuse_values(inputs, params, ["q", "k", "k_scale", "weights"])
        names = ("q", "weights", "k", "k_scale", "block_ids", "ks", "ke")
        return self.take(token_scores=self.ops.token_scores(*self.put(inputs, *names), block))

    def token_topk(self, inputs, params, out):
        refuse_block_ids(inputs["block_ids"], None)
        names = ("token_scores", "block_ids", "ks", "ke")
        sizes = params.block_size, params.topk_tokens
        return self.take(slots=self.ops.token_topk(*self.put(inputs, *names), *sizes))

    def index_map(self, inputs, params, out):
        refuse_block_ids(inputs["block_ids"], None)
        slots, ids, ks, ke = self.put(inputs, "slots", "block_ids", "ks", "ke")
        block = params.block_size
        refuse_slots(self.torch, slots, self.ops.slot_keys(ids, ks, ke, block)[1])
        return self.take(indices=self.ops.index_map(slots, ids, ks, block))

    def whole(self, inputs, params):
        """The tensors of a whole indexer, on the device."""
        refuse_windows(inputs, len(inputs["k"]))
        refuse_values(inputs, params, ["q", "k", "k_scale", "weights"])
        return self.put(inputs, "q", "weights", "k", "k_scale", "ks", "ke")

    def hisa(self, inputs, params, out):
        return self.take(indices=self.ops.hisa(*self.whole(inputs, params), params))

    def dsa(self, inputs, params, out):
        tensors = self.whole(inputs, params)
        scores, indices = self.ops.dsa(*tensors, params.topk_tokens)
        return self.take(flat_scores=scores, indices=indices)

    def block_sparse(self, inputs, params, out):
        ids, indices = self.ops.block_sparse(*self.whole(inputs, params), params)
        return self.take(block_ids=ids, indices=indices)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    device = parser.parse_args().device
    hisa_port.claim_stdout()
    port = Port(*load(device))
    hisa_port.serve(port.functions(), name=f"torch {device}", numerics=NUMERICS)


if __name__ == "__main__":
    main()
