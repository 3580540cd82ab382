"""The reader and writer of safetensors: round trips, also with the package, and damage."""

import json

import numpy as np
import pytest
import safetensors.numpy

import hisa_port

TENSORS = {
    "codes": np.arange(7, dtype=np.uint8),
    "ids": np.array([[-1, 2**31 - 1], [0, 5]], np.int32),
    "long": np.array([2**40], np.int64),
    "floats": np.array([[np.nan, -0.0, np.inf, 1e-45]], np.float32),
    "half": np.ones((2, 1, 2), np.float16),
    "none": np.zeros((0, 4), np.float32),
    "scalar": np.array(3.5, np.float64),
    "bits": np.array([True, False]),
}
NO_DATA = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}


def same(made, wanted):
    assert sorted(made) == sorted(wanted)
    for name, tensor in wanted.items():
        assert made[name].dtype == tensor.dtype and made[name].shape == tensor.shape, name
        assert made[name].tobytes() == tensor.tobytes(), name


def test_round_trip(tmp_path):
    path = tmp_path / "file"
    hisa_port.write_safetensors(path, TENSORS, {"block_size": "4"})
    made, metadata = hisa_port.read_safetensors(path)
    same(made, TENSORS)
    assert metadata == {"block_size": "4"}
    made["ids"][0, 0] = 7  # writable
    assert all(tensor.flags.aligned for tensor in made.values())


def test_the_package_reads_what_is_written(tmp_path):
    hisa_port.write_safetensors(tmp_path / "file", TENSORS, {"name": "é\"\\"})
    same(safetensors.numpy.load_file(tmp_path / "file"), TENSORS)
    with safetensors.safe_open(tmp_path / "file", framework="np") as file:
        assert file.metadata() == {"name": "é\"\\"}


def test_what_the_package_writes_is_read(tmp_path):
    safetensors.numpy.save_file(TENSORS, tmp_path / "file", {"a": "b"})
    made, metadata = hisa_port.read_safetensors(tmp_path / "file")
    same(made, TENSORS)
    assert metadata == {"a": "b"}


def test_a_shorter_file_replaces_a_longer_one(tmp_path):
    hisa_port.write_safetensors(tmp_path / "file", TENSORS)
    hisa_port.write_safetensors(tmp_path / "file", {"t": TENSORS["ids"]})
    same(hisa_port.read_safetensors(tmp_path / "file")[0], {"t": TENSORS["ids"]})


def test_views_are_written_as_they_look(tmp_path):
    tensor = np.arange(12, dtype=np.int32).reshape(3, 4)
    hisa_port.write_safetensors(tmp_path / "file", {"t": tensor.T[1:]})
    same(hisa_port.read_safetensors(tmp_path / "file")[0], {"t": tensor.T[1:].copy()})


def test_a_tensor_off_its_alignment_is_moved(tmp_path):
    header = {
        "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]},
        "c": {"dtype": "BF16", "shape": [1], "data_offsets": [5, 7]},
        "d": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [7, 8]},
    }
    write(tmp_path / "file", header, b"\x07\x00\x00\x80\x3f\x80\x3f\x38")
    made, _ = hisa_port.read_safetensors(tmp_path / "file")
    assert made["b"].tolist() == [1.0] and made["b"].flags.aligned
    assert made["c"].tolist() == [0x3F80] and made["d"].tolist() == [0x38]


def write(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    path.write_bytes(length.to_bytes(8, "little") + text + data)


def entry(**changes):
    good = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return {"t": {**good, **changes}}


DAMAGED = {
    "no JSON": (b"{", b""),
    "not an object": (b"[]", b""),
    "deep": (b'{"a":' + b"[" * 100_000, b""),
    "not UTF-8": (b'{"\xff":1}', b""),
    "twice": (b'{"t":%b,"t":%b}' % ((json.dumps(NO_DATA).encode(),) * 2), b""),
    "entry": ({"t": 1}, b""),
    "dtype": (entry(dtype="F31"), b"12345678"),
    "dtype of another type": (entry(dtype=[]), b"12345678"),
    "shape": (entry(shape=[-2]), b"12345678"),
    "shape of truth": (entry(shape=[True, 2]), b"12345678"),
    "shape of floats": (entry(shape=[2.0]), b"12345678"),
    "overflow": (entry(shape=[2**62, 4]), b"12345678"),
    "absurd shape": (entry(shape=[2**70]), b"12345678"),
    "rank": (entry(shape=[1] * 40, data_offsets=[0, 4]), b"1234"),
    "offsets": (entry(data_offsets=[8, 0]), b"12345678"),
    "offset": (entry(data_offsets=[0]), b"12345678"),
    "size": (entry(data_offsets=[0, 7]), b"12345678"),
    "past the end": (entry(), b"1234567"),
    "trailing": (entry(), b"123456789"),
    "gap": (entry(data_offsets=[1, 9]), b"123456789"),
    "overlap": ({**entry(), "u": entry()["t"]}, b"12345678"),
    "metadata": ({"__metadata__": {"a": 1}}, b""),
    "metadata list": ({"__metadata__": []}, b""),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_refused(tmp_path, damage):
    write(tmp_path / "file", *DAMAGED[damage])
    with pytest.raises(hisa_port.FileError):
        hisa_port.read_safetensors(tmp_path / "file")


@pytest.mark.parametrize("data", [b"", b"1234567", b"\x09" + bytes(7) + b"{}", b"\xff" * 16])
def test_short_files_are_refused(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(hisa_port.FileError):
        hisa_port.read_safetensors(tmp_path / "file")


def test_random_damage_never_gets_through_unseen(tmp_path):
    """A changed byte is refused, or changes a value and nothing else."""
    rng, path = np.random.default_rng(1), tmp_path / "file"
    hisa_port.write_safetensors(path, TENSORS)
    good = path.read_bytes()
    refused = 0
    for _ in range(2000):
        data = bytearray(good)
        data[rng.integers(len(data))] = rng.integers(256)
        cut = int(rng.integers(len(data))) if rng.random() < 0.2 else len(data)
        path.write_bytes(data[:cut])
        try:
            made, _ = hisa_port.read_safetensors(path)
        except hisa_port.FileError:
            refused += 1
            continue
        assert sum(tensor.nbytes for tensor in made.values()) <= len(good)
    assert refused > 500
