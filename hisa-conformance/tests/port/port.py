"""A port of index_map and block_mask that needs nothing but Python, for the tests of the protocol.

    python3 port.py [FAULT [BATCH]]

Without a fault it is right. A fault named `hello-...` shows in the first line; every other one
strikes in requests about more than ROWS rows, so that most cases pass.
"""

import json
import math
import os
import signal
import struct
import subprocess
import sys
import time

FAULT = sys.argv[1] if len(sys.argv) > 1 else "none"
BATCH = int(sys.argv[2]) if len(sys.argv) > 2 else 1
ROWS = int(os.environ.get("PORT_ROWS", "6"))
STAGES = ["index_map", "block_mask"]
LETTERS = {"U8": "B", "F32": "I", "I32": "i", "I64": "q", "F64": "d", "U16": "H"}
NEGATIVE, POSITIVE = 0xFF800000, 0x7F800000  # infinities, as bits


def read(path):
    """Tensors by name: shape and elements, floats as their bits."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            count = math.prod(entry["shape"])
            start = 8 + length + entry["data_offsets"][0]
            layout = f"<{count}{LETTERS[entry['dtype']]}"
            tensors[name] = (entry["shape"], list(struct.unpack_from(layout, data, start)))
    return tensors


def write(path, tensors):
    """Writes name -> (dtype, shape, elements)."""
    header, body = {}, b""
    for name, (dtype, shape, elements) in tensors.items():
        part = struct.pack(f"<{len(elements)}{LETTERS[dtype]}", *elements)
        offsets = [len(body), len(body) + len(part)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        body += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


def index_map(tensors, params):
    b, k = params["block_size"], params["topk_tokens"]
    (rows, columns), slots = tensors["slots"]
    ids = tensors["block_ids"]
    out = []
    for row in range(rows):
        ks, ke = tensors["ks"][1][row], tensors["ke"][1][row]
        blocks = ids[1][row * ids[0][1] : (row + 1) * ids[0][1]]
        for slot in slots[row * columns : (row + 1) * columns]:
            block = blocks[slot // b] if 0 <= slot < len(blocks) * b else -1
            key = block * b + slot % b
            out.append(key - ks if block >= 0 and ks <= key < ke else -1)
    return {"indices": ("I32", [rows, k], out)}


def block_mask(tensors, params):
    b = params["block_size"]
    (rows, blocks), scores = tensors["block_scores"]
    out = []
    for row in range(rows):
        ks, ke = tensors["ks"][1][row], tensors["ke"][1][row]
        first, end = (ks // b, -(-ke // b)) if ks < ke else (0, 0)
        for block in range(blocks):
            forced = block in (first, end - 1)
            inside = POSITIVE if forced else scores[row * blocks + block]
            out.append(inside if first <= block < end else NEGATIVE)
    return {"block_mask": ("F32", [rows, blocks], out)}


def compute(case):
    tensors = read(case["in"])
    made = globals()[case["stage"]](tensors, case["params"])
    return made, len(tensors["ks"][1])


def say(value):
    raw(json.dumps(value).encode() + b"\n")


def raw(data):
    os.write(1, data)


def hang():
    time.sleep(1000)


def spoil(made, case):
    """Faults of the output file; the reply is ok."""
    name, (dtype, shape, elements) = next(iter(made.items()))
    path = case["out"]
    if FAULT == "wrong":
        made[name] = (dtype, shape, [e + (name == "indices" and e >= 1) for e in elements])
    elif FAULT == "stale" and case["fill"] == "ones":
        made[name] = (dtype, shape, elements[:-1] + [0x7FFFFFFF])
    elif FAULT == "dtype":
        made[name] = ("F64", shape, [0.0] * len(elements))
    elif FAULT == "wide":
        made[name] = ("I64", shape, elements) if dtype == "I32" else made[name]
    elif FAULT == "too-wide" and dtype == "I32":
        made[name] = ("I64", shape, elements[:-1] + [1 << 40])
    elif FAULT == "nan":
        made[name] = (dtype, shape, [0x7FC00000] * len(elements))
    elif FAULT == "missing":
        made = {"something": made[name]}
    elif FAULT == "extra":
        made["something"] = ("F64", [1], [0.5])
    elif FAULT == "shape":
        made[name] = (dtype, [shape[0] * shape[1]], elements)
    elif FAULT == "short":
        made[name] = (dtype, [shape[0], shape[1] - 1], elements[: shape[0] * (shape[1] - 1)])
    write(path, made)
    if FAULT == "truncated":
        os.truncate(path, os.path.getsize(path) - 1)
    elif FAULT == "oversized":
        os.truncate(path, 1 << 30)  # a hole, no disk
    elif FAULT == "huge-tensor":
        text = b'{"%s":{"dtype":"%s","shape":[2000000000],"data_offsets":[0,8000000000]}}' % (
            name.encode(),
            dtype.encode(),
        )
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
    elif FAULT == "no-file":
        os.unlink(path)
    elif FAULT == "folder":
        os.unlink(path)
        os.mkdir(path)
    elif FAULT == "pipe":
        os.unlink(path)
        os.mkfifo(path)
    elif FAULT == "other-files":
        with open(os.path.join(os.path.dirname(path), "leftover"), "wb") as file:
            file.write(b"mine")


def fork_sleeper(**options):
    """A child that outlives its parent if it is let."""
    subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, **options)


def daemon():
    """Leaves parent, group, session and environment behind."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execve("/bin/sleep", ["sleep", "1000"], {"DAEMON": os.environ["PORT_MARK"]})
        os._exit(0)
    os.wait()


def strike(request):
    """Faults in place of a reply; the files are written."""
    reply = {"id": request["id"], "status": "ok"}
    if FAULT == "garbage":
        raw(b"Segmentation fault, sort of\n")
    elif FAULT == "wrong-id":
        say({"id": request["id"] + 1, "status": "ok"})
    elif FAULT == "half":
        raw(b'{"id":%d,"sta' % request["id"])
        os._exit(0)
    elif FAULT == "binary":
        raw(bytes(range(256)) * 4 + b"\n")
    elif FAULT == "no-newline":
        raw(json.dumps(reply).encode())
        hang()
    elif FAULT == "huge-line":
        try:
            raw_all(b"x" * (4 << 20) + b"\n")
        except BrokenPipeError:
            pass
    elif FAULT == "twice":
        say(reply)
        say(reply)
    elif FAULT == "no-why":
        say({"id": request["id"], "status": "error"})
    elif FAULT == "unknown-key":
        say({**reply, "took": 3})
    elif FAULT == "error":
        print("the allocator is sad", file=sys.stderr, flush=True)
        say({"id": request["id"], "status": "error", "why": "out of memory"})
    elif FAULT == "refused":
        say({"id": request["id"], "status": "refused", "why": "ks looks odd"})
    elif FAULT == "unsupported":
        say({"id": request["id"], "status": "unsupported", "why": "too many rows"})
    elif FAULT == "exit":
        print("first words\nlast words", file=sys.stderr, flush=True)
        os._exit(3)
    elif FAULT == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif FAULT == "hang":
        print("thinking", file=sys.stderr, flush=True)
        hang()
    elif FAULT == "sleeper":
        fork_sleeper()
        os._exit(1)
    elif FAULT == "sleeper-setsid":
        fork_sleeper(start_new_session=True)
        os._exit(1)
    elif FAULT == "daemon":
        daemon()
        hang()
    elif FAULT == "closes-stdin":
        os.close(0)
        say(reply)
        hang()
    elif FAULT == "closes-stdout":
        os.close(1)
        hang()
    elif FAULT == "noise":
        for _ in range(100):
            sys.stderr.write(("x" * 1023 + "\n") * 1024)
        sys.stderr.flush()
        os._exit(1)
    else:
        return False
    return True


def raw_all(data):
    while data:
        data = data[os.write(1, data) :]


def answer(request):
    cases = request.get("cases", [request])
    replies, struck = [], False
    made = [(case, *compute(case)) for case in cases]
    if FAULT == "swapped" and len(made) > 1:
        outs = [case["out"] for case, _, _ in made]
        for (case, _, _), out in zip(made, outs[1:] + outs[:1]):
            case["out"] = out
    for case, outputs, rows in made:
        if rows > ROWS:
            struck = True
            spoil(outputs, case)
        else:
            write(case["out"], outputs)
        replies.append({"status": "ok"})
    if struck and FAULT == "short-list" and len(replies) > 1:
        replies.pop()
    if struck and strike(request):
        return
    if "cases" in request:
        say({"id": request["id"], "cases": replies})
    else:
        say({"id": request["id"], "status": "ok"})


def hello():
    line = {"hello": 1, "name": f"tiny-{FAULT}", "stages": STAGES, "batch": BATCH}
    line["numerics"] = {"quantize": "exact", "block_pool": "exact", "scores": "exact"}
    if FAULT == "limits":
        line["limits"] = {"H": [2, 3], "D": [16], "B": 8, "M": 5, "N": 40, "K": [4, 8], "m": 3}
    if FAULT == "hello-version":
        line["hello"] = 2
    elif FAULT == "hello-stage":
        line["stages"] = ["index_map", "topk"]
    elif FAULT == "hello-nonsense":
        raw(b"loading model... done\n")
    elif FAULT == "hello-silent":
        hang()
    elif FAULT == "hello-exit":
        sys.exit("no such device")
    elif FAULT == "early":
        say(line)
        say({"id": 1, "status": "ok"})
        return
    say(line)


def main():
    if FAULT == "leaves-daemon":
        daemon()
    hello_line = sys.stdin.readline()
    assert json.loads(hello_line) == {"hello": 1}, hello_line
    hello()
    while line := sys.stdin.readline():
        answer(json.loads(line))


main()
