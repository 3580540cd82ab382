#!/usr/bin/env python3
"""Every stage in plain torch operations, on a CPU or a GPU: a port to start from.

    hisa run --port 'python3 torch_port.py'
    hisa run --port 'python3 torch_port.py --device cuda'

Quantising is exact. Pooling sums in f64 and rounds once, which is within what f32 pooling may be.
Dots are exact in f64, and heads are summed in f64, one after another. No tensor core is used.
"""

import argparse

import torch_device  # first: it says in one line what is missing

import hisa_port

NUMERICS = {"quantize": "exact", "block_pool": "f32", "scores": "bounded:exact"}


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


def refuse_offsets(name, offsets):
    """Offsets start with 0 and never decrease (SPEC W.4)."""
    if len(offsets) == 0 or offsets[0] != 0:
        raise hisa_port.Refused(f"{name}[0] is {offsets[0] if len(offsets) else 'absent'}")
    if (offsets[1:] < offsets[:-1]).any():
        at = int((offsets[1:] < offsets[:-1]).argmax()) + 1
        why = f"{name}[{at}] is {offsets[at]}, below its predecessor {offsets[at - 1]}"
        raise hisa_port.Refused(why)


def refuse_shard(rows, rank, ranks):
    """Rows divide into two chunks for each rank (SPEC W.7)."""
    if ranks < 1 or not 0 <= rank < ranks or rows % (2 * ranks):
        raise hisa_port.Refused(f"{rows} rows do not split into 2 x {ranks} chunks, rank {rank}")


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


class Port(torch_device.Transfers):
    """The stage functions, bound to a device."""

    def __init__(self, torch, device):
        super().__init__(torch, device)
        import torch_hisa

        self.ops = torch_hisa

    def functions(self):
        """By name, in the order of the stages."""
        names = [name for name in hisa_port.OUTPUTS if hasattr(self, name)]
        return self.guarded({name: getattr(self, name) for name in names})

    def put(self, inputs, *names):
        """As `Transfers.put`, with int64 for int32."""
        int32 = self.torch.int32
        tensors = super().put(inputs, *names)
        return [tensor.long() if tensor.dtype == int32 else tensor for tensor in tensors]

    def windows(self, inputs, params, out):
        if "ks" in inputs:
            refuse_windows(inputs, params.get("keys", 2**31 - 1))
            return {name: inputs[name] for name in ("ks", "ke")}
        names = sorted(inputs)
        for name in names:
            refuse_offsets(name, inputs[name])
        cu = dict(zip(names, self.put(inputs, *names)))
        stride, positions = params.get("kv_stride"), params.get("first_positions")
        if stride == 0:
            raise hisa_port.Refused("kv_stride is 0")
        positions = self.torch.tensor(positions, device=self.device) if positions else None
        cu_q = cu.get("cu_seqlens", cu.get("cu_seqlens_q"))
        cu_k = cu.get("cu_seqlens_k")
        if cu_k is not None and len(cu_k) != len(cu_q):
            why = f"cu_seqlens_k has {len(cu_k)} entries, cu_seqlens_q {len(cu_q)}"
            raise hisa_port.Refused(why)
        ks, ke = self.ops.windows(cu_q, cu_k, stride, positions)
        if cu_k is not None and int(cu_k[-1]) != params.get("keys", int(cu_k[-1])):
            raise hisa_port.Refused(f"cu_seqlens_k ends with {int(cu_k[-1])}, not {params['keys']}")
        if params.get("cp_ranks") is not None:
            share = params["cp_rank"], params["cp_ranks"]
            refuse_shard(len(ks), *share)
            ks, ke = self.ops.shard(ks, *share), self.ops.shard(ke, *share)
        padding = (0, params.get("rows", len(ks)) - len(ks))
        pad = self.torch.nn.functional.pad
        return self.take(ks=pad(ks, padding, value=2**31 - 1), ke=pad(ke, padding))

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
    port = Port(*torch_device.load(device))
    hisa_port.serve(port.functions(), name=f"torch {device}", numerics=NUMERICS)


if __name__ == "__main__":
    main()
