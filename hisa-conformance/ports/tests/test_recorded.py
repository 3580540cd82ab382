"""The exchange that docs/PROTOCOL.md shows, byte by byte, with the ports here in its place."""

import json
import re
import shutil
import subprocess
import sys

import pytest

import hisa_port
from support import PORTS, ROOT, Port

PAGE = (ROOT / "docs/PROTOCOL.md").read_text()
EXCHANGE = PAGE[PAGE.index("## A whole exchange") :]


def dumped(text):
    """The bytes of a hexadecimal dump."""
    lines = re.findall(r"^[0-9a-f]{4}: ((?:[0-9a-f]{2,4} )+) ", text, flags=re.MULTILINE)
    return bytes.fromhex("".join(lines))


def commands(folder):
    yield [sys.executable, str(PORTS / "numpy_port.py")]
    if shutil.which("cc"):
        subprocess.run(
            ["cc", "-std=c11", PORTS / "index_map_port.c", "-o", folder / "port"], check=True
        )
        yield [folder / "port"]


def test_the_files_of_the_page_are_read():
    sent, written = (dumped(dump) for dump in re.findall(r"```text\n(0000.*?)```", EXCHANGE, re.S))
    assert len(sent) == 384 and len(written) == 86


def test_the_exchange_of_the_page(tmp_path):
    sent, written = (dumped(dump) for dump in re.findall(r"```text\n(0000.*?)```", EXCHANGE, re.S))
    hello, request = (json.loads(line) for line in re.findall(r"^<- (.*)$", EXCHANGE, re.M))
    (tmp_path / "in").write_bytes(sent)
    (tmp_path / "shown").write_bytes(written)
    wanted, _ = hisa_port.read_safetensors(tmp_path / "shown")
    assert wanted["indices"].tolist() == [[0, 1]]
    request.update({"in": str(tmp_path / "in"), "out": str(tmp_path / "out")})
    for command in commands(tmp_path):
        for number, fill in ((1, "zeros"), (2, "ones")):
            with Port(*command) as port:
                assert port.ask(hello)["hello"] == 1
                assert port.ask({**request, "id": number, "fill": fill}) == {
                    "id": number,
                    "status": "ok",
                }
                assert port.close() == (0, b"")
            made, _ = hisa_port.read_safetensors(tmp_path / "out")
            assert made["indices"].tolist() == [[0, 1]]
            (tmp_path / "out").unlink()


TABLE = PAGE[PAGE.index("### Tensors") : PAGE.index("### The pieces")]
ROWS = re.findall(r"^\| `(\w+)` \| .*? \| (.*?) \|$", TABLE, re.M)


def test_the_table_holds_every_stage():
    assert [stage for stage, _ in ROWS] == list(hisa_port.OUTPUTS)


@pytest.mark.parametrize("stage, writes", ROWS)
def test_the_table_of_outputs_is_that_of_the_page(stage, writes):
    named = tuple(re.findall(r"`(\w+)`", writes.split(", as `")[0]))
    assert hisa_port.OUTPUTS[stage] == named
