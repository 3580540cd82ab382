"""A port in Python: the worker loop of the port protocol (docs/PROTOCOL.md) around your functions.

    import hisa_port
    from my_kernels import my_topk

    def block_topk(inputs, params, out):
        my_topk(inputs["block_mask"], inputs["ks"], inputs["ke"], out["block_ids"])

    hisa_port.serve({"block_topk": block_topk}, name="mine")

A function gets the tensors of its stage under the names of docs/SPEC.md as numpy arrays, fp8 codes
as uint8, and fills the arrays of `out`, or returns a dict of arrays by the same names. It raises
`Refused` for input it finds malformed and `Unsupported` for what it does not do; every other
exception is reported as an error, and the loop goes on. Needs Python 3.9 and numpy, nothing else.
"""

import json
import math
import os
import sys

import numpy as np

PROTOCOL = 1
WHY_MAX = 2000  # characters of a reason
BATCH_MAX = 1024

OUTPUTS = {
    "windows": ("ks", "ke"),
    "quantize": ("codes", "scale"),
    "block_pool": ("pooled_k", "pooled_scale"),
    "block_scores": ("block_scores",),
    "block_mask": ("block_mask",),
    "block_topk": ("block_ids",),
    "token_scores": ("token_scores",),
    "token_topk": ("slots",),
    "index_map": ("indices",),
    "append": ("pooled_k", "pooled_scale"),
    "hisa": ("indices",),
    "dsa": ("flat_scores", "indices"),
    "block_sparse": ("block_ids", "indices"),
}
CODES = ("codes", "pooled_k")
IDS = ("ks", "ke", "block_ids", "slots", "indices")


class Refused(Exception):
    """The input is malformed (SPEC V.10)."""


class Unsupported(Exception):
    """The port does not do this."""


class FileError(Exception):
    """A safetensors file that contradicts itself."""


class Params(dict):
    """The parameters of a request, as attributes too; what is absent has SPEC's default."""

    DEFAULTS = {
        "rank": "bf16",
        "strict": True,
        "scale_format": "f32",
        "overflow": "saturating",
    }

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            pass
        try:
            return self.DEFAULTS[name]
        except KeyError:
            raise AttributeError(f"the request has no parameter {name}") from None


# Values


def _e4m3_values():
    codes = np.arange(256)
    exponent, fraction = codes >> 3 & 15, codes & 7
    normal = (8 + fraction) * 2.0 ** (exponent - 10.0)
    magnitude = np.where(exponent == 0, fraction * 2.0**-9, normal)
    values = np.copysign(magnitude, np.where(codes < 128, 1.0, -1.0)).astype(np.float32)
    values[codes & 0x7F == 0x7F] = np.nan
    return values


E4M3 = _e4m3_values()
"""The value of each of the 256 codes (SPEC V.1)."""


def e4m3_decode(codes):
    """uint8 codes to float32."""
    return E4M3[codes]


def _e4m3_steps():
    """`steps[c]` is the least f64 that encodes to a code above `c`, saturation left aside."""
    values = np.append(E4M3[:127].astype(np.float64), 480.0)
    middles = (values[:-1] + values[1:]) / 2
    odd = np.arange(127) % 2 == 1  # a tie goes up exactly from an odd code
    return np.where(odd, middles, np.nextafter(middles, np.inf))


_STEPS = _e4m3_steps()


def e4m3_encode(values, overflow="saturating"):
    """float32 or float64 to uint8 codes, rounded once (SPEC V.2).

    `overflow` is "saturating" or "non-saturating".
    """
    values = np.asarray(values)
    codes = np.searchsorted(_STEPS, np.abs(values), side="right").astype(np.uint8)
    if overflow == "saturating":
        np.minimum(codes, 0x7E, out=codes)
    elif overflow != "non-saturating":
        raise ValueError(f'overflow is {overflow!r}; allowed are "saturating", "non-saturating"')
    negative, nan = np.signbit(values), np.isnan(values)
    codes[nan] = 0x7F
    if overflow == "saturating":
        negative &= ~nan
    return codes | negative.astype(np.uint8) << 7


def bf16_round(values):
    """float32 rounded to bf16, still as float32 (SPEC V.3)."""
    values = np.asarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)))
    rounded = (rounded & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), rounded)


def bf16_decode(halves):
    """uint16, the upper halves of float32, to float32."""
    return (np.asarray(halves).astype(np.uint32) << np.uint32(16)).view(np.float32)


# safetensors

_DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "F8_E4M3": np.dtype(np.uint8),
    "F8_E5M2": np.dtype(np.uint8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(np.uint16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "F32": np.dtype(np.float32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F64": np.dtype(np.float64),
}
_NAMES = {
    dtype: name for name, dtype in _DTYPES.items() if name not in ("F8_E4M3", "F8_E5M2", "BF16")
}
_HEADER_MAX = 100_000_000


def read_safetensors(path):
    """The tensors of a file as writable arrays, and its metadata, two dicts.

    fp8 comes as uint8 and bf16 as uint16. Raises `FileError` for a file that contradicts itself.
    """
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            got = file.readinto(view[at:])
            if not got:
                raise FileError(f"the file ends after {at} of {size} bytes")
            at += got
    if size < 8:
        raise FileError(f"the file holds {size} bytes; the length of the header alone takes 8")
    length = int.from_bytes(data[:8], "little")
    if length > min(size - 8, _HEADER_MAX):
        raise FileError(f"the header takes {length} bytes; the file holds {size}")
    start = 8 + length
    entries = _header(bytes(data[8:start]))
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FileError("__metadata__ does not map names to strings")
    tensors, end = {}, 0
    for begin, stop, name, dtype, shape, count in sorted(
        _entry(name, entry) for name, entry in entries.items()
    ):
        if begin != end:
            raise FileError(f"tensor {name!r} begins at {begin}, after data that ends at {end}")
        if stop > size - start:
            raise FileError(f"tensor {name!r} ends at {stop}; {size - start} bytes of data exist")
        tensor = np.frombuffer(data, _DTYPES[dtype], count, start + begin).reshape(shape)
        tensors[name] = tensor if tensor.flags.aligned else tensor.copy()
        end = stop
    if end != size - start:
        raise FileError(f"data ends at {end}, the file at {size - start}")
    return tensors, metadata


def _header(text):
    if text[:1] != b"{":
        raise FileError("the header does not begin with {")
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise FileError(f"the header is not JSON: {error}") from None


def _distinct(pairs):
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise FileError("a name occurs twice in the header")
    return entries


def _entry(name, entry):
    """One tensor's entry, checked by itself: what it needs is what it has."""
    if not isinstance(entry, dict):
        raise FileError(f"tensor {name!r} is no object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise FileError(f"tensor {name!r} has the unknown dtype {dtype!r}")
    if not _sizes(shape) or len(shape) > 32:
        raise FileError(f"tensor {name!r} has the shape {shape!r}")
    if not _sizes(offsets) or len(offsets) != 2:
        raise FileError(f"tensor {name!r} has the offsets {offsets!r}")
    begin, end = offsets
    count = math.prod(shape)
    if count * _DTYPES[dtype].itemsize != end - begin:
        raise FileError(f"tensor {name!r} {dtype} {shape} does not take {end - begin} bytes")
    return begin, end, name, dtype, shape, count


def _sizes(numbers):
    if type(numbers) is not list or not set(map(type, numbers)) <= {int}:
        return False
    return not numbers or (min(numbers) >= 0 and max(numbers) < 2**63)


def write_safetensors(path, tensors, metadata=None):
    """Writes arrays by name; replaces what was there. `metadata` maps strings to strings."""
    entries, parts, end = {}, [], 0
    if metadata:
        entries["__metadata__"] = metadata
    # The widest first, as other writers do: then every tensor is aligned.
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].itemsize):
        tensor = np.ascontiguousarray(tensor).reshape(tensor.shape)
        if tensor.dtype not in _NAMES:
            raise TypeError(f"{name} is {tensor.dtype}, which the file format does not have")
        begin, end = end, end + tensor.nbytes
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": tensor.shape,
            "data_offsets": (begin, end),
        }
        parts.append(tensor)
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    # Not cut to nothing first: some file systems then wait for the disk when it is closed.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for part in parts:
            file.write(part.data if part.size else b"")
        file.truncate()


# Outputs


def output_shapes(stage, inputs, params):
    """The shapes of a stage's outputs, by name (SPEC, clause 0 of each stage)."""
    b = params.get("block_size", 0)
    if stage == "windows":
        rows = params.get("rows")
        return {} if rows is None else {"ks": (rows,), "ke": (rows,)}
    if stage == "quantize":
        return {"codes": inputs["x"].shape, "scale": inputs["x"].shape[:1]}
    if stage in ("block_pool", "append"):
        n, d = inputs["k"].shape
        return {"pooled_k": (-(-n // b), d), "pooled_scale": (-(-n // b),)}
    m = inputs["ks"].shape[0]
    if stage == "block_scores":
        return {"block_scores": (m, inputs["pooled_k"].shape[0])}
    if stage == "block_mask":
        return {"block_mask": inputs["block_scores"].shape}
    if stage == "block_topk":
        return {"block_ids": (m, params.block_topk)}
    if stage == "token_scores":
        return {"token_scores": (m, inputs["block_ids"].shape[1] * b)}
    if stage == "token_topk":
        return {"slots": (m, params.topk_tokens)}
    if stage == "index_map":
        return {"indices": inputs["slots"].shape}
    if stage == "dsa":
        return {"flat_scores": (m, inputs["k"].shape[0]), "indices": (m, params.topk_tokens)}
    if stage == "block_sparse":
        blocks = -(-params.topk_tokens // b)
        return {"block_ids": (m, blocks), "indices": (m, blocks * b)}
    return {"indices": (m, params.topk_tokens)}


def _empty(name, shape, fill):
    """An output nobody has written: zeros, or 0x7FFFFFFF, a NaN and an id far out of range."""
    if name in CODES:
        return np.full(shape, 0x7F if fill == "ones" else 0, np.uint8)
    tensor = np.full(shape, 0x7FFFFFFF if fill == "ones" else 0, np.int32)
    return tensor if name in IDS else tensor.view(np.float32)


def _checked(name, tensor):
    """An output in a dtype the protocol takes."""
    tensor = np.asarray(tensor)
    dtype = tensor.dtype
    if name in CODES:
        if dtype == np.uint8:
            return tensor
        if dtype.name == "float8_e4m3fn":  # of ml_dtypes
            return tensor.view(np.uint8)
        allowed = "uint8"
    elif name in IDS:
        if dtype == np.int32 or dtype == np.int64:
            return tensor
        allowed = "int32, int64"
    else:
        if dtype == np.float32:
            return tensor
        allowed = "float32"
    raise TypeError(f"output {name} is {dtype}; allowed: {allowed}")


# The loop

_replies = None


def claim_stdout():
    """Keeps the real standard output for replies and lets everything else that is written to it
    go to standard error. `serve` does it; call it before imports that print."""
    global _replies
    if _replies is None:
        sys.stdout.flush()
        _replies = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)


def serve(
    functions,
    name,
    numerics=None,
    limits=None,
    batch=64,
    permissive=True,
    ordered=True,
):
    """Answers requests on standard input until it closes.

    `functions` maps names of stages to functions. `numerics` declares the arithmetic, as
    `{"block_pool": "exact", "scores": "bounded:exact"}`; `limits` the largest sizes, or the sizes
    taken, by letter: `{"H": 64, "D": [64, 128], "D_multiple": 16}`. `batch` is the number of cases
    a request may hold, `permissive` says whether values that strict mode refuses are taken,
    `ordered` whether ids come best first.
    """
    hello = {"hello": PROTOCOL, "name": name, "stages": list(functions)}
    unknown = [stage for stage in functions if stage not in OUTPUTS]
    if unknown or not functions:
        raise ValueError(f"stages {unknown} are unknown; known are {', '.join(OUTPUTS)}")
    if not 1 <= batch <= BATCH_MAX:
        raise ValueError(f"batch is {batch}; allowed are 1 to {BATCH_MAX}")
    hello.update(
        {
            key: value
            for key, value in (("numerics", numerics), ("limits", limits))
            if value is not None
        },
        batch=batch,
        permissive=permissive,
        ordered=ordered,
    )
    claim_stdout()
    for line in sys.stdin.buffer:
        if line.strip():
            _send(answer(line, functions, hello))


def _send(reply):
    data = memoryview(json.dumps(reply).encode() + b"\n")
    while data:
        data = data[_replies.write(data) :]


def answer(line, functions, hello):
    """The reply to one line; never raises for what the line holds."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {"id": None, "status": "error", "why": f"the request is not JSON: {error}"}
    if not isinstance(request, dict):
        return {"id": None, "status": "error", "why": "the request is no object"}
    if "hello" in request:
        return hello
    number = request.get("id")
    if "cases" not in request:
        return {"id": number, **run_case(request, functions)}
    cases = request["cases"]
    if not isinstance(cases, list) or len(cases) > hello["batch"]:
        why = f"cases has to be a list of at most {hello['batch']}"
        return {"id": number, "status": "error", "why": why}
    return {"id": number, "cases": [run_case(case, functions) for case in cases]}


def run_case(case, functions):
    """Runs one case from file to file; the status says how it went."""
    try:
        _run(case, functions)
    except Refused as error:
        return {"status": "refused", "why": str(error)[:WHY_MAX]}
    except Unsupported as error:
        return {"status": "unsupported", "why": str(error)[:WHY_MAX]}
    except Exception as error:  # whatever a kernel throws is an answer
        return {"status": "error", "why": describe(error)[:WHY_MAX]}
    return {"status": "ok"}


def _run(case, functions):
    if not isinstance(case, dict):
        raise TypeError("a case is no object")
    for key in ("stage", "in", "out"):
        if not isinstance(case.get(key), str):
            raise TypeError(f"{key} of the request is {case.get(key)!r}; expected a string")
    stage, params, fill = case["stage"], case.get("params", {}), case.get("fill", "zeros")
    if stage not in functions:
        raise Unsupported(f"{stage} is not offered")
    if not isinstance(params, dict):
        raise TypeError(f"params of the request is {params!r}; expected an object")
    if fill not in ("zeros", "ones"):
        raise ValueError(f'fill is {fill!r}; allowed are "zeros", "ones"')
    params = Params(params)
    inputs, _ = read_safetensors(case["in"])
    write_safetensors(case["out"], call(functions[stage], stage, inputs, params, fill))


def call(function, stage, inputs, params, fill="zeros"):
    """The outputs of `stage` as `function` makes them, by name, in dtypes the protocol takes."""
    shapes = output_shapes(stage, inputs, params)
    out = {name: _empty(name, shape, fill) for name, shape in shapes.items()}
    made = function(inputs, params, out)
    tensors = out if made is None else {**out, **made}
    missing = [name for name in OUTPUTS[stage] if name not in tensors]
    if missing:
        raise KeyError(f"{stage} made no {', '.join(missing)}")
    return {name: _checked(name, tensors[name]) for name in OUTPUTS[stage]}


def describe(error):
    """Type, message and innermost frame of an exception."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    text = f"{type(error).__name__}: {error}"
    if frame is None:
        return text
    code = frame.tb_frame.f_code
    return f"{text} ({os.path.basename(code.co_filename)}:{frame.tb_lineno} in {code.co_name})"
