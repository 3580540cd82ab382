"""Places, a port as a process, and random inputs of every stage."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np

PORTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = PORTS.parents[1]
HISA = os.environ.get("HISA", str(ROOT / "target/release/hisa"))

sys.path.insert(0, str(PORTS))


class Port:
    """A port that was started, spoken to line by line."""

    def __init__(self, *command, **options):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **options
        )

    def send(self, line):
        line = line if isinstance(line, bytes) else json.dumps(line).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def ask(self, line):
        self.send(line)
        reply = self.process.stdout.readline()
        assert reply.endswith(b"\n"), reply
        return json.loads(reply)

    def close(self):
        """Ends the input; the exit code, and what else was printed."""
        rest, _ = self.process.communicate(timeout=20)
        return self.process.returncode, rest

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def numpy_port(*arguments, **options):
    return Port(sys.executable, str(PORTS / "numpy_port.py"), *arguments, **options)


def problem(rng, m=5, n=23, h=3, d=7, b=4, blocks=3, topk=6, values="plain"):
    """Random inputs of the indexers, and parameters."""
    q, k = rng.integers(0, 256, (m, h, d), np.uint8), rng.integers(0, 256, (n, d), np.uint8)
    k_scale, weights = rng.random(n, np.float32), rng.normal(size=(m, h)).astype(np.float32)
    for codes in (q, k):
        if values == "ties":
            codes &= 0xB8
        codes[codes & 0x7F == 0x7F] = 0x38
    if values == "ties":
        k_scale[:], weights = 1, np.sign(weights)
    if values == "wide":
        k_scale = np.ldexp(k_scale, rng.integers(-140, 120, n)).astype(np.float32)
        weights = np.ldexp(weights, rng.integers(-140, 100, (m, h))).astype(np.float32)
    if values == "foreign":
        for tensor in (q, k):
            tensor[rng.random(tensor.shape) < 0.01] = 0xFF
        for tensor in (k_scale, weights):
            where = rng.random(tensor.shape) < 0.15
            odd = np.array([np.nan, np.inf, -np.inf, -0.0, -2, 2.0**-149, 3e38], np.float32)
            tensor[where] = rng.choice(odd, int(where.sum()))
    if values == "zero":
        k_scale[:] = rng.choice(np.array([0, -0.0, 1], np.float32), n)
    ends = rng.integers(0, n + 1, (m, 2), np.int32)
    ks, ke = ends.min(axis=1), ends.max(axis=1)
    empty = rng.random(m) < 0.15
    ks[empty], ke[empty] = 2**31 - 1, 0
    params = {"block_size": b, "block_topk": blocks, "topk_tokens": topk}
    params.update(rank="bf16" if rng.random() < 0.7 else "f32", strict=values != "foreign")
    tensors = dict(q=q, k=k, k_scale=k_scale, weights=weights, ks=ks, ke=ke)
    return tensors, params
