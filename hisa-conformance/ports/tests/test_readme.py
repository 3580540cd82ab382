"""What the README shows, run."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import hisa_port
from support import HISA, PORTS, Port

README = (PORTS / "README.md").read_text()
KERNEL = """
import numpy as np

def my_index_map(slots, block_ids, ks, b, out):
    blocks = np.take_along_axis(block_ids, np.maximum(slots, 0) // b, axis=1)
    out[...] = np.where(slots < 0, -1, blocks * b + slots % b - ks[:, None])
"""


def python_blocks():
    return re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_function_in_five_lines(tmp_path):
    example = python_blocks()[0]
    assert len([line for line in example.splitlines() if line.strip()]) == 5
    shutil.copy(PORTS / "hisa_port.py", tmp_path)
    (tmp_path / "my_kernels.py").write_text(KERNEL)
    (tmp_path / "my_port.py").write_text(example)
    tensors = {
        "slots": np.array([[1, 4, -1, 2]], np.int32),
        "block_ids": np.array([[1, 2, 3]], np.int32),
        "ks": np.array([3], np.int32),
        "ke": np.array([7], np.int32),
    }
    hisa_port.write_safetensors(tmp_path / "in", tensors)
    case = {"stage": "index_map", "params": {"block_size": 2}, "fill": "ones"}
    case.update({"in": str(tmp_path / "in"), "out": str(tmp_path / "out")})
    with Port(sys.executable, str(tmp_path / "my_port.py")) as port:
        assert port.ask({"hello": 1})["stages"] == ["index_map"]
        assert port.ask({"id": 1, **case}) == {"id": 1, "status": "ok"}
    made, _ = hisa_port.read_safetensors(tmp_path / "out")
    assert made["indices"].tolist() == [[0, 3, -1, 1]]  # SPEC, index_map-window


def test_the_declaration_is_sent(tmp_path):
    text = "import hisa_port\nstages = {'hisa': print}\n" + python_blocks()[1]
    (tmp_path / "port.py").write_text(text)
    shutil.copy(PORTS / "hisa_port.py", tmp_path)
    with Port(sys.executable, str(tmp_path / "port.py")) as port:
        hello = port.ask({"hello": 1})
    assert hello["numerics"] == {"block_pool": "f32", "scores": "bounded:hopper-qgmma"}
    assert hello["limits"] == {"H": [32, 64], "D": 128, "D_multiple": 32}
    assert hello["permissive"] is False and hello["ordered"] is True


def manifest(folder, broken=False):
    tensors = {
        "block_scores": np.array([[1, 2, 3, 4]], np.float32),
        "ks": np.array([0], np.int32),
        "ke": np.array([8], np.int32),
    }
    inputs = list(tensors)
    mask = np.array([[np.inf, 2, 3, np.inf]], np.float32) + np.float32(broken)
    hisa_port.write_safetensors(folder / "good", {**tensors, "block_mask": mask})
    hisa_port.write_safetensors(folder / "bad", {**tensors, "ke": np.array([9], np.int32)})
    common = {"op": "block_mask", "params": {"block_size": 2}, "inputs": inputs}
    cases = [
        {"id": "block_mask/ends", "file": "good", "result": "exact", "outputs": ["block_mask"]},
        {"id": "block_mask/past", "file": "bad", "result": "rejected", "outputs": []},
        {"id": "block_mask/big", "result": "exact", "outputs": [], "digests": {}},
    ]
    text = json.dumps({"schema": 1, "cases": [{**common, **case} for case in cases]})
    (folder / "manifest.json").write_text(text)


@pytest.mark.parametrize("broken, summary", [(False, "2 passed, 1 skipped"), (True, "1 failed")])
def test_the_fixtures_example(tmp_path, broken, summary, monkeypatch):
    manifest(tmp_path, broken)
    monkeypatch.setenv("HISA_FIXTURES", str(tmp_path))
    assert summary in example("test_fixtures.py")


takes_ports = pytest.mark.skipif(
    not shutil.which(HISA) or "--port" not in subprocess.getoutput(f"'{HISA}' run --help"),
    reason="no hisa that takes --port",
)


@takes_ports
def test_the_run_example(monkeypatch):
    monkeypatch.setenv("HISA", HISA)
    assert "2 passed" in example("test_run.py", "-k", "windows or index_map")


@takes_ports
def test_the_run_example_fails_for_a_wrong_port(monkeypatch, tmp_path):
    """A port whose kernel lets -1 become an id."""
    shutil.copy(PORTS / "hisa_port.py", tmp_path)
    broken = KERNEL.replace("slots < 0, -1", "slots < -1, -1")
    (tmp_path / "my_kernels.py").write_text(broken)
    (tmp_path / "my_port.py").write_text(python_blocks()[0])
    monkeypatch.setenv("HISA", HISA)
    monkeypatch.setenv("PORT_COMMAND", f"'{sys.executable}' '{tmp_path / 'my_port.py'}'")
    assert "1 failed" in example("test_run.py", "-k", "index_map")


def example(name, *options):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    return subprocess.run(
        [*command, PORTS / "examples" / name], capture_output=True, text=True
    ).stdout
