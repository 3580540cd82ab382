"""The worker loop: recorded requests, malformed ones, and functions that misbehave."""

import sys
import textwrap

import ml_dtypes
import numpy as np
import pytest

import hisa_port
from support import PORTS, Port, numpy_port

SCORES = np.array([[1, 2, 3, 4]], np.float32)
WINDOWS = {"ks": np.array([1], np.int32), "ke": np.array([8], np.int32)}


@pytest.fixture
def case(tmp_path):
    """A request for block_mask, with its file."""
    source = tmp_path / "in put.safetensors"
    hisa_port.write_safetensors(source, {"block_scores": SCORES, **WINDOWS})
    return {
        "stage": "block_mask",
        "params": {"block_size": 2, "strict": True, "rank": "bf16"},
        "in": str(source),
        "out": str(tmp_path / "out.safetensors"),
        "fill": "zeros",
    }


def output(case, name):
    return hisa_port.read_safetensors(case["out"])[0][name]


def test_hello_and_a_case(case):
    with numpy_port() as port:
        hello = port.ask({"hello": 1})
        assert hello["hello"] == 1 and hello["name"] == "numpy" and hello["batch"] == 256
        assert hello["stages"] == list(hisa_port.OUTPUTS)
        assert hello["numerics"] == {"quantize": "exact", "block_pool": "exact", "scores": "exact"}
        assert port.ask({"id": 1, **case}) == {"id": 1, "status": "ok"}
        assert output(case, "block_mask").tolist() == [[np.inf, 2, 3, np.inf]]
        assert port.close() == (0, b"")


def test_scores_in_f32_are_declared():
    with numpy_port("--scores", "f32") as port:
        assert port.ask({"hello": 1})["numerics"]["scores"] == "bounded:exact"


def test_lists_answer_case_by_case(case):
    wrong = {**case, "params": {"block_size": 3}}
    with numpy_port() as port:
        reply = port.ask({"id": 3, "cases": [case, wrong, {}, 4, {**case, "stage": "none"}]})
        statuses = [each["status"] for each in reply["cases"]]
        assert reply["id"] == 3
        assert statuses == ["ok", "ok", "error", "error", "unsupported"]
        assert port.ask({"id": 4, "cases": []}) == {"id": 4, "cases": []}
        assert port.ask({"id": 5, "cases": [case] * 257})["status"] == "error"


MALFORMED = [
    b"nonsense",
    b"[1]",
    b"null",
    b'{"id":1}',
    b'{"id":1,"stage":7,"in":"a","out":"b"}',
    b'{"id":1,"stage":"hisa","in":"/none","out":"/none"}',
    b'{"id":1,"stage":"hisa","in":"/dev/null","out":"/none"}',
    b'{"id":1,"stage":"hisa","in":"/tmp","out":"/none"}',
    b'{"id":1,"stage":"hisa","params":[],"in":"a","out":"b"}',
    b'{"id":1,"stage":"hisa","fill":"twos","in":"a","out":"b"}',
    b'{"id":1,"cases":7}',
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"id":' + b"9" * 5000 + b"}",
]


@pytest.mark.parametrize("line", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_requests_are_answered_and_the_loop_goes_on(case, line):
    with numpy_port() as port:
        reply = port.ask(line)
        assert reply["status"] == "error" and reply["why"], reply
        assert port.ask({"id": 2, **case})["status"] == "ok"


def test_blank_lines_are_passed_over(case):
    with numpy_port() as port:
        port.send(b"\n  ")
        assert port.ask({"id": 2, **case})["status"] == "ok"


@pytest.mark.parametrize(
    "params, status",
    [
        ({}, "error"),
        ({"block_size": 0}, "refused"),
        ({"block_size": 1}, "refused"),
        ({"block_size": "2"}, "error"),
    ],
)
def test_bad_parameters(case, params, status):
    with numpy_port() as port:
        assert port.ask({"id": 1, **case, "params": params})["status"] == status


def test_a_missing_tensor_is_named(case):
    hisa_port.write_safetensors(case["in"], {"block_scores": SCORES, "ks": WINDOWS["ks"]})
    with numpy_port() as port:
        reply = port.ask({"id": 1, **case})
        assert reply["status"] == "error" and "ke" in reply["why"]


PREAMBLE = f"import os, sys; sys.path.insert(0, {str(PORTS)!r})\nimport numpy as np, hisa_port\n"


def port_of(body, tail="hisa_port.serve({'block_mask': f}, name='test')", **options):
    function = "def f(inputs, params, out):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    return Port(sys.executable, "-c", f"{PREAMBLE}{function}\n{tail}", **options)


def why(case, body):
    with port_of(body) as port:
        reply = port.ask({"id": 1, **case})
        assert port.ask({"id": 2, **case})["id"] == 2
        return reply["status"], reply.get("why")


def test_exceptions_are_reported_with_their_place(case):
    status, text = why(case, "x = 1\nreturn {}[x]")
    assert status == "error" and text.startswith("KeyError: 1 (<string>:5 in f)")
    assert why(case, "raise hisa_port.Refused('row 3')") == ("refused", "row 3")
    assert why(case, "raise hisa_port.Unsupported('B')") == ("unsupported", "B")
    status, text = why(case, "raise RuntimeError('x' * 10**6)")
    assert status == "error" and len(text) <= hisa_port.WHY_MAX
    assert why(case, "def g(): return g()\ng()")[0] == "error"


def test_prints_do_no_harm(case):
    body = "print('print'); os.system('echo child'); os.write(1, b'raw'); sys.stdout.flush()"
    with port_of(body, stderr=-1) as port:
        assert port.ask({"id": 1, **case}) == {"id": 1, "status": "ok"}
        port.process.stdin.close()
        port.process.stdin = None
        noise = port.process.communicate()[1]
        for word in (b"print", b"child", b"raw"):
            assert word in noise


def test_output_keeps_what_the_function_does_not_write(case):
    with port_of("pass") as port:
        port.ask({"id": 1, **case, "fill": "ones"})
        assert (output(case, "block_mask").view(np.int32) == 0x7FFFFFFF).all()
        port.ask({"id": 2, **case, "fill": "zeros"})
        assert (output(case, "block_mask").view(np.int32) == 0).all()


def test_outputs_filled_and_returned(case):
    with port_of("out['block_mask'][:] = 7") as port:
        assert port.ask({"id": 1, **case})["status"] == "ok"
        assert output(case, "block_mask").tolist() == [[7, 7, 7, 7]]
    with port_of("return {'block_mask': inputs['block_scores'].T[::2], 'x': object()}") as port:
        assert port.ask({"id": 1, **case})["status"] == "ok"
        assert output(case, "block_mask").tolist() == [[1], [3]]  # for `shape` to see


def test_inputs_may_be_changed_in_place(case):
    with port_of("s = inputs['block_scores']; s += 1; return {'block_mask': s}") as port:
        assert port.ask({"id": 1, **case})["status"] == "ok"
        assert output(case, "block_mask").tolist() == [[2, 3, 4, 5]]


def test_wrong_dtypes_are_named(case):
    status, text = why(case, "return {'block_mask': inputs['block_scores'].astype('f8')}")
    assert status == "error" and "block_mask is float64; allowed: float32" in text
    status, text = why(case, "return {'block_mask': 'text'}")
    assert status == "error"


def test_codes_of_ml_dtypes_and_ids_of_64_bits_are_taken():
    codes = np.array([1.0], ml_dtypes.float8_e4m3fn)
    assert hisa_port._checked("pooled_k", codes).tolist() == [0x38]
    assert hisa_port._checked("indices", np.array([1])).dtype == np.int64
    with pytest.raises(TypeError):
        hisa_port._checked("indices", np.array([1], np.uint32))


@pytest.mark.parametrize(
    "tail",
    [
        "hisa_port.serve({}, name='x')",
        "hisa_port.serve({'block_masks': f}, name='x')",
        "hisa_port.serve({'block_mask': f}, name='x', batch=0)",
    ],
)
def test_wrong_tables_end_the_port_before_it_starts(tail):
    with port_of("pass", tail, stderr=-1) as port:
        assert port.process.wait(10) == 1


def test_shapes_of_all_outputs():
    rng = np.random.default_rng(0)
    from support import problem

    import numpy_port as port

    tensors, params = problem(rng)
    params = hisa_port.Params(params, pieces=[23], rows=8)
    tensors.update(x=np.ones((3, 5), np.float32), cu_seqlens=np.array([0, 8]))
    for stage, function in port.STAGES.items():
        made = function(tensors, params, {})
        shapes = hisa_port.output_shapes(stage, tensors, params)
        assert {name: tensor.shape for name, tensor in made.items()} == shapes, stage
        assert tuple(made) == hisa_port.OUTPUTS[stage]
        tensors.update(made)
        if stage == "windows":
            tensors.update(problem(rng, m=8)[0])
