"""The port in C, compiled without a warning and run under the sanitizers."""

import json
import os
import shutil
import subprocess

import numpy as np
import pytest

import hisa_port
import numpy_port
from support import PORTS, Port, problem

SOURCE = PORTS / "index_map_port.c"
CC = shutil.which(os.environ.get("CC", "cc"))
STRICT = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZE = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    path = tmp_path_factory.mktemp("c") / "port"
    subprocess.run([CC, *STRICT, *SANITIZE, SOURCE, "-o", path], check=True)
    return path


def test_it_compiles_without_a_warning(tmp_path):
    subprocess.run([CC, *STRICT, SOURCE, "-o", tmp_path / "port"], check=True)


def request(folder, stage, tensors, params):
    source, target = str(folder / "in"), str(folder / "out")
    hisa_port.write_safetensors(source, tensors, {"note": 'a "quoted" {name}'})
    return {"id": 1, "stage": stage, "params": params, "in": source, "out": target, "fill": "ones"}


def chain(rng, **sizes):
    """Tensors and parameters that index_map and block_mask take."""
    tensors, params = problem(rng, **sizes)
    params = hisa_port.Params(params)
    for stage in ("block_pool", "block_scores", "block_mask", "block_topk", "token_scores",
                  "token_topk"):  # fmt: skip
        tensors.update(numpy_port.STAGES[stage](tensors, params, {}))
    return tensors, params


INPUTS = {
    "index_map": ("slots", "block_ids", "ks", "ke"),
    "block_mask": ("block_scores", "ks", "ke"),
}
SIZES = [{}, {"m": 0}, {"n": 0}, {"m": 30, "n": 100, "b": 16, "topk": 40}, {"b": 1, "n": 5}]


@pytest.mark.parametrize("sizes", SIZES)
def test_it_agrees_with_the_port_in_numpy(binary, tmp_path, sizes):
    rng = np.random.default_rng(len(sizes))
    with Port(binary) as port:
        hello = port.ask({"hello": 1})
        assert hello["hello"] == 1 and sorted(hello["stages"]) == sorted(INPUTS)
        for _ in range(20):
            tensors, params = chain(rng, **sizes)
            if tensors["block_scores"].size:
                scores = tensors["block_scores"].view(np.int32)
                scores[rng.random(scores.shape) < 0.2] = 0x7FC12345
            for stage, names in INPUTS.items():
                case = request(tmp_path, stage, {name: tensors[name] for name in names}, params)
                assert port.ask(case) == {"id": 1, "status": "ok"}
                made, _ = hisa_port.read_safetensors(case["out"])
                wanted = numpy_port.STAGES[stage](tensors, params, {})
                for name, tensor in wanted.items():
                    assert made[name].dtype == tensor.dtype and made[name].shape == tensor.shape
                    assert made[name].tobytes() == tensor.tobytes(), name
        assert port.close() == (0, b"")


def test_malformed_ids_are_refused_by_both(binary, tmp_path):
    """Ids, slots and windows changed at random: both ports refuse the same inputs."""
    rng = np.random.default_rng(5)
    refused = 0
    with Port(binary) as port:
        for _ in range(300):
            tensors, params = chain(rng)
            name = ["slots", "block_ids", "ks", "ke"][rng.integers(4)]
            place = tensors[name].reshape(-1)
            place[rng.integers(len(place))] = rng.choice([-2, -1, 0, 3, 7, 30, 2**31 - 1, -(2**31)])
            given = {name: tensors[name] for name in INPUTS["index_map"]}
            status = port.ask(request(tmp_path, "index_map", given, params))["status"]
            try:
                wanted = numpy_port.index_map(given, params, {})["indices"]
            except hisa_port.Refused:
                refused += 1
                assert status == "refused"
                continue
            assert status == "ok"
            made, _ = hisa_port.read_safetensors(tmp_path / "out")
            assert np.array_equal(made["indices"], wanted)
    assert refused > 50


def test_damaged_files_and_lines_are_survived(binary, tmp_path):
    """Bytes changed, doubled and cut: an answer each time, and no report of a sanitizer."""
    rng = np.random.default_rng(6)
    tensors, params = chain(rng)
    given = {name: tensors[name] for name in INPUTS["index_map"]}
    case = request(tmp_path, "index_map", given, params)
    good, line = (tmp_path / "in").read_bytes(), json.dumps(case).encode()
    seen = set()
    with Port(binary) as port:
        for turn in range(3000):
            (tmp_path / "in").write_bytes(damaged(rng, good) if turn % 2 else good)
            bad = line if turn % 2 else damaged(rng, line).replace(b"\n", b" ").replace(b"\0", b"")
            if bad.strip() and str(tmp_path).encode() in bad.replace(b"\\", b""):
                seen.add(port.ask(bad)["status"])
        port.send(b"")
        assert port.close()[0] == 0
    assert {"ok", "error", "refused"} <= seen


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(data)))
        kind = rng.integers(4)
        if kind == 0:
            data[at] = rng.integers(256)
        elif kind == 1:
            data[at : at + 1] = bytes(rng.choice(list(b'"[]{},:\\0-9e '), 3).tolist())
        elif kind == 2:
            del data[at : at + int(rng.integers(1, 20))]
        elif len(data) > 30:
            del data[at:]
        if not data:
            data = bytearray(b"{")
    return bytes(data)


HEADERS = [
    b"",
    b"{",
    b'{"slots"',
    b'{"slots":',
    b'{"slots":"',
    b'{"slots":"\\',
    b'{"slots":{"dtype":"I32","shape":[1,1],"data_offsets":[0,4]}',
    b"[" * 300 + b"]" * 300,
    b'{"a":' * 100 + b"1" + b"}" * 100,
    b'{"slots":7}',
    b'{"slots":{"dtype":"I32","shape":[99999999999999999999,1],"data_offsets":[0,4]}}',
    b'{"slots":{"dtype":"I32","shape":[2147483647,2147483647],"data_offsets":[0,4]}}',
    b'{"slots":{"dtype":"I32","shape":[-1,1],"data_offsets":[0,4]}}',
    b'{"slots":{"dtype":"I32","shape":[1,1,1],"data_offsets":[0,4]}}',
    b'{"slots":{"dtype":"I32","shape":[1,1],"data_offsets":[4,0]}}',
    b'{"slots":{"dtype":"I32","shape":[1,1],"data_offsets":[9223372036854775800,4]}}',
    b'{"slots":{"dtype":"' + b"I" * 100 + b'","shape":[1,1],"data_offsets":[0,4]}}',
    b"{\0}",
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_headers_that_lie(binary, tmp_path, header):
    for length in (len(header), len(header) + 1, 2**63, 2**64 - 1):
        data = length.to_bytes(8, "little") + header + b"1234"
        (tmp_path / "in").write_bytes(data)
        case = {"id": 1, "stage": "index_map", "params": {"block_size": 2}}
        with Port(binary) as port:
            reply = port.ask({**case, "in": str(tmp_path / "in"), "out": str(tmp_path / "out")})
            assert reply["status"] == "error" and reply["why"]
            assert port.close()[0] == 0


LINES = [
    b"nonsense",
    b"[1]",
    b"{}",
    b'{"id":"x"}',
    b'{"id":1e5}',
    b'{"id":1}',
    b'{"id":1,"stage":"index_map","in":"/none","out":"/none"}',
    b'{"id":1,"stage":"' + b"x" * 5000 + b'","in":"/none","out":"/none"}',
    b'{"id":1,"stage":"index_map","params":{"block_size":2},"in":"' + b"a" * 5000 + b'","out":""}',
    b'{"id":1,"stage":"index_map","params":{"block_size":0},"in":"","out":""}',
    b'{"id":1,"stage":"index_map","params":3,"in":"","out":""}',
    b'{"id":1,"stage":"hisa","in":"\\u0041","out":"\\q"}',
    b"{" * 1000,
    b'{"a":' + b"[" * 1_000_000,
    b'{"id":99999999999999999999999}',
]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_malformed_lines_are_answered(binary, line):
    with Port(binary) as port:
        assert port.ask(line)["status"] in ("error", "refused", "unsupported")
        assert port.ask({"hello": 1})["hello"] == 1
        assert port.close()[0] == 0


def test_an_endless_line_ends_the_port(binary):
    with Port(binary, stderr=-1) as port:
        with pytest.raises(BrokenPipeError):
            port.send(b"{" * (3 << 20))
        assert port.process.wait(10) == 1
