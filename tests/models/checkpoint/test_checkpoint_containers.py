"""Every kind of file: written here, recognised by its content, loaded to the same numbers."""

from __future__ import annotations

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from tiny_network import Source
from torch import Tensor, nn

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint import load_checkpoint

Writer = Callable[[nn.Module, Path], Path]


def zip_file(net: nn.Module, folder: Path) -> Path:
    torch.save(net.state_dict(), folder / "file")
    return folder / "file"


def zip_called_safetensors(net: nn.Module, folder: Path) -> Path:
    torch.save(net.state_dict(), folder / "model.safetensors")
    return folder / "model.safetensors"


def zip_of_a_later_protocol(net: nn.Module, folder: Path) -> Path:
    torch.save({"model": net.state_dict()}, folder / "file", pickle_protocol=4)
    return folder / "file"


def zip_zipped_anew(net: nn.Module, folder: Path) -> Path:
    """Somebody unpacked it and packed it again, with compression: nothing can be mapped."""
    with (
        zipfile.ZipFile(zip_file(net, folder)) as old,
        zipfile.ZipFile(folder / "anew.pth", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return folder / "anew.pth"


def zip_without_checksums(net: nn.Module, folder: Path) -> Path:
    torch.serialization.set_crc32_options(False)
    try:
        return zip_file(net, folder)
    finally:
        torch.serialization.set_crc32_options(True)


def zip_saved_on_cuda(net: nn.Module, folder: Path) -> Path:
    """The same file, but that every tensor says it was on the second GPU."""
    with (
        zipfile.ZipFile(zip_file(net, folder)) as on_cpu,
        zipfile.ZipFile(folder / "cuda.pth", "w") as on_cuda,
    ):
        for name in on_cpu.namelist():
            content = on_cpu.read(name)
            if name.endswith("data.pkl"):
                assert b"X\x03\x00\x00\x00cpu" in content
                content = content.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:1")
            on_cuda.writestr(name, content)
    return folder / "cuda.pth"


def from_before_1_6(net: nn.Module, folder: Path) -> Path:
    torch.save(net.state_dict(), folder / "file", _use_new_zipfile_serialization=False)
    return folder / "file"


def safetensors_called_pth(net: nn.Module, folder: Path) -> Path:
    safetensors.torch.save_file(net.state_dict(), folder / "best.pth", metadata={"format": "pt"})
    return folder / "best.pth"


def shards(net: nn.Module, folder: Path) -> Path:
    state = net.state_dict()
    spread = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(state)}
    for shard in set(spread.values()):
        own = {name: tensor for name, tensor in state.items() if spread[name] == shard}
        safetensors.torch.save_file(own, folder / shard)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": spread}))
    return index


def folder_of_shards(net: nn.Module, folder: Path) -> Path:
    return shards(net, folder).parent


def shards_of_torch(net: nn.Module, folder: Path) -> Path:
    state = net.state_dict()
    spread = {name: f"pytorch_model-{i % 3}.bin" for i, name in enumerate(state)}
    for shard in set(spread.values()):
        torch.save({n: t for n, t in state.items() if spread[n] == shard}, folder / shard)
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": spread}))
    return index


def dcp_folder(net: nn.Module, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is but one process
        dcp.save({"model": net.state_dict(), "epoch": 3}, checkpoint_id=folder / "step_10")
    return folder / "step_10"


def torchscript(net: nn.Module, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit is deprecated, its files stay
        torch.jit.save(torch.jit.script(net), folder / "file")
    return folder / "file"


def traced_torchscript(net: nn.Module, folder: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.jit.save(torch.jit.trace(net, torch.zeros(1, 3, 8, 8)), folder / "file")
    return folder / "file"


def export_archive(net: nn.Module, folder: Path) -> Path:
    program = torch.export.export(net, (torch.zeros(2, 3, 8, 8),))
    torch.export.save(program, folder / "net.pt2")
    return folder / "net.pt2"


def export_archive_of_torch_2_6(net: nn.Module, folder: Path) -> Path:
    state = io.BytesIO()
    torch.save(net.state_dict(), state)
    with zipfile.ZipFile(folder / "file", "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
        archive.writestr("serialized_state_dict.pt", state.getvalue())
        archive.writestr("version", "7.0")
    return folder / "file"


def pickled_arrays(net: nn.Module, folder: Path) -> Path:
    arrays = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    (folder / "model.pkl").write_bytes(pickle.dumps({"model": arrays, "__author__": "zoo"}))
    return folder / "model.pkl"


def pickled_arrays_of_protocol_5(net: nn.Module, folder: Path) -> Path:
    arrays = {name: tensor.numpy() for name, tensor in net.state_dict().items()}
    (folder / "model.pkl").write_bytes(pickle.dumps(arrays, protocol=5))
    return folder / "model.pkl"


def pickled_tensors(net: nn.Module, folder: Path) -> Path:
    (folder / "model.pkl").write_bytes(pickle.dumps(dict(net.state_dict())))
    return folder / "model.pkl"


def arrays_in_a_zip(net: nn.Module, folder: Path) -> Path:
    torch.save({name: tensor.numpy() for name, tensor in net.state_dict().items()}, folder / "file")
    return folder / "file"


KINDS: dict[Writer, str] = {
    zip_file: "PyTorch zip file",
    zip_called_safetensors: "PyTorch zip file",
    zip_of_a_later_protocol: "PyTorch zip file",
    zip_zipped_anew: "PyTorch zip file",
    zip_without_checksums: "PyTorch zip file",
    zip_saved_on_cuda: "PyTorch zip file",
    arrays_in_a_zip: "PyTorch zip file",
    from_before_1_6: "PyTorch file from before 1.6",
    safetensors_called_pth: "safetensors",
    shards: "shards with an index",
    folder_of_shards: "shards with an index",
    shards_of_torch: "shards with an index",
    dcp_folder: "DCP folder",
    torchscript: "TorchScript archive",
    traced_torchscript: "TorchScript archive",
    export_archive: "torch.export archive",
    export_archive_of_torch_2_6: "torch.export archive",
    pickled_arrays: "pickle",
    pickled_arrays_of_protocol_5: "pickle",
    pickled_tensors: "pickle",
}


@pytest.mark.parametrize("kind", ["factory", "torchvision"])  # copied and assigned
@pytest.mark.parametrize("write", KINDS, ids=lambda write: write.__name__)
def test_each_kind_is_recognised_and_loaded_to_the_same_numbers(
    write: Writer, kind: str, net: nn.Module, state: dict[str, Tensor], tmp_path: Path
) -> None:
    model, account = load_checkpoint(write(net, tmp_path), Source(kind=kind))
    assert account.container == KINDS[write]
    assert (account.loaded, account.missing, account.unexpected) == (len(state), (), ())
    loaded = model.state_dict()
    assert loaded.keys() == state.keys()
    for name, tensor in loaded.items():
        assert tensor.device.type == "cpu"
        assert torch.equal(tensor, state[name]), name


REFUSED = {
    "lfs": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 46830571\n",
        ["Git LFS pointer", "git lfs pull"],
    ),
    "html": (b"\n <!DOCTYPE html><html><body>404</body></html>", ["web page"]),
    "xml": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", ["web page"]),
    "empty": (b"", ["is empty"]),
    "text": (b"epoch 3 loss 0.1\n" * 9, ["text file"]),
    "json": (b'{"architectures": ["ResNet"]}', ["text file"]),
    "gzip": (b"\x1f\x8b\x08\x00abcdef", ["gzip"]),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(100), ["HDF5"]),
    "tar": (bytes(257) + b"ustar\x0000" + bytes(300), ["tar archive"]),
    "noise": (bytes(range(3, 256)) * 4, ["no kind that holds PyTorch weights"]),
    "number": (pickle.dumps(3), ["holds no tensors"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_checkpoint_is_refused_by_what_it_is(name: str, tmp_path: Path) -> None:
    content, said = REFUSED[name]
    path = tmp_path / "best.pth"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, Source())
    assert "best.pth" in caught.value.message
    for words in said:
        assert words in str(caught.value)


@pytest.mark.parametrize("write", [zip_file, torchscript, export_archive, from_before_1_6])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused(
    write: Writer, share: float, net: nn.Module, tmp_path: Path
) -> None:
    path = write(net, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match=r"is cut off|is damaged"):
        load_checkpoint(path, Source())


@pytest.mark.parametrize("write", [zip_file, zip_zipped_anew, torchscript, export_archive])
def test_a_flipped_bit_among_the_numbers_is_found(
    write: Writer, net: nn.Module, tmp_path: Path
) -> None:
    path = write(net, tmp_path)
    weight = next(iter(net.state_dict().values())).numpy().tobytes()
    content = bytearray(path.read_bytes())
    place = content.find(weight)
    with zipfile.ZipFile(path) as archive:
        first = next(e for e in archive.infolist() if "data/" in e.filename and e.compress_size > 9)
    if place < 0:  # compressed
        place = first.header_offset + len(first.filename) + 40
    content[place + 5] ^= 4
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(path, Source())


def test_a_shard_that_is_gone_or_lies_elsewhere_is_named(net: nn.Module, tmp_path: Path) -> None:
    index = shards(net, tmp_path)
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model-1\.safetensors"):
        load_checkpoint(index, Source())
    index.write_text(json.dumps({"weight_map": {"head.weight": "../../other.pth"}}))
    with pytest.raises(CheckpointError, match="does not lie beside it"):
        load_checkpoint(index, Source())


def test_one_shard_of_several_says_so(net: nn.Module, tmp_path: Path) -> None:
    names = list(net.state_dict())[:8]
    own = {name: net.state_dict()[name] for name in names}
    safetensors.torch.save_file(own, tmp_path / "model-00001-of-00002.safetensors")
    with pytest.raises(CheckpointError, match="one shard of several"):
        load_checkpoint(tmp_path / "model-00001-of-00002.safetensors", Source())


def test_a_tensor_in_several_dcp_chunks_is_put_together(tmp_path: Path) -> None:
    """As two ranks write it: each half of the rows in a file of its own."""
    from torch.distributed.checkpoint import metadata as form
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    whole = torch.arange(20.0).reshape(5, 4)
    halves = {(0, 0): whole[:2], (2, 0): whole[2:]}
    chunks, places = [], {}
    for rank, (offset, part) in enumerate(halves.items()):
        buffer = io.BytesIO()
        torch.save(part.clone(), buffer)
        (tmp_path / f"__{rank}_0.distcp").write_bytes(b"before" + buffer.getvalue() + b"behind")
        chunks.append(form.ChunkStorageMetadata(torch.Size(offset), part.shape))
        places[form.MetadataIndex("net.weight", torch.Size(offset))] = _StorageInfo(
            f"__{rank}_0.distcp", len(b"before"), len(buffer.getvalue())
        )
    properties = form.TensorProperties(dtype=torch.float32)
    tensors = {"net.weight": form.TensorStorageMetadata(properties, whole.shape, chunks)}
    metadata = form.Metadata(state_dict_metadata=tensors, storage_data=places)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    linear = Source(lambda: nn.Linear(4, 5, bias=False), variants=())
    model, account = load_checkpoint(tmp_path, linear)
    assert torch.equal(model.weight, whole)
    assert account.prefix == "net."


def test_a_part_of_a_dcp_folder_names_the_folder(net: nn.Module, tmp_path: Path) -> None:
    folder = dcp_folder(net, tmp_path)
    for part in (folder / ".metadata", next(folder.glob("*.distcp"))):
        with pytest.raises(CheckpointError, match="Name the folder"):
            load_checkpoint(part, Source())


def test_a_missing_file_names_its_neighbours(net: nn.Module, tmp_path: Path) -> None:
    zip_file(net, tmp_path).rename(tmp_path / "epoch_10.pth")
    with pytest.raises(CheckpointError, match=r"no file .*epoch_1\.pth") as caught:
        load_checkpoint(tmp_path / "epoch_1.pth", Source())
    assert "epoch_10.pth" in caught.value.hint


def test_a_folder_without_a_checkpoint_and_a_zip_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder"):
        load_checkpoint(tmp_path, Source())
    with zipfile.ZipFile(tmp_path / "best.pth", "w") as archive:
        archive.writestr("run/best.pth", b"not looked at")
    with pytest.raises(CheckpointError, match="not one that torch wrote"):
        load_checkpoint(tmp_path / "best.pth", Source())


def test_a_frozen_torchscript_archive_has_no_names_left(net: nn.Module, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        frozen = torch.jit.freeze(torch.jit.trace(net, torch.zeros(1, 3, 8, 8)))
        torch.jit.save(frozen, tmp_path / "frozen.pt")
    with pytest.raises(CheckpointError, match="no tensors by name"):
        load_checkpoint(tmp_path / "frozen.pt", Source())
