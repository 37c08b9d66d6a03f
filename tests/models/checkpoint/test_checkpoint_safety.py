"""Nothing in a file is run, unless the user says so; what is harmless is let through."""

from __future__ import annotations

import argparse
import datetime
import os
import pathlib
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_network import Source, TinyNet
from torch import Tensor, nn

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint import load_checkpoint


class Trap:
    """What an attacker puts into a file: unpickling it makes a file called ``sprung``."""

    def __init__(self, folder: Path) -> None:
        self.command = f"touch {folder / 'sprung'}"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (self.command,)


def in_a_zip(value: Any, path: Path) -> Path:
    torch.save(value, path)
    return path


def in_a_zip_of_a_later_protocol(value: Any, path: Path) -> Path:
    torch.save(value, path, pickle_protocol=4)
    return path


def in_an_old_file(value: Any, path: Path) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=False)
    return path


def in_a_plain_pickle(value: Any, path: Path) -> Path:
    path.write_bytes(pickle.dumps(value))
    return path


def in_torchscript(value: Any, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr("net/constants.pkl", pickle.dumps((), protocol=2))
    return path


def in_a_dcp_folder(value: Any, path: Path) -> Path:
    path.mkdir()
    (path / ".metadata").write_bytes(pickle.dumps(value))
    return path


PLACES = [
    in_a_zip,
    in_a_zip_of_a_later_protocol,
    in_an_old_file,
    in_a_plain_pickle,
    in_torchscript,
    in_a_dcp_folder,
]


@pytest.mark.parametrize("put", PLACES)
def test_a_malicious_pickle_is_named_and_not_run(
    put: Callable[[Any, Path], Path], state: dict[str, Tensor], tmp_path: Path
) -> None:
    path = put({"state_dict": state, "args": Trap(tmp_path)}, tmp_path / "best.pth")
    with pytest.raises(CheckpointError, match=r"system") as caught:
        load_checkpoint(path, Source())
    assert not (tmp_path / "sprung").exists()
    if put not in (in_torchscript, in_a_dcp_folder):
        assert "--unsafe-load" in caught.value.hint


@pytest.mark.parametrize("put", PLACES[:3])
def test_unsafe_load_runs_it_and_says_so(
    put: Callable[[Any, Path], Path], state: dict[str, Tensor], tmp_path: Path
) -> None:
    """The proof that the traps above were live ones."""
    path = put({"state_dict": state, "args": Trap(tmp_path)}, tmp_path / "best.pth")
    model, account = load_checkpoint(path, Source(), unsafe_load=True)
    assert (tmp_path / "sprung").exists()
    assert account.ran_code
    assert "--unsafe-load" in account.line()
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("put", PLACES[:3])
def test_a_whole_pickled_model_needs_unsafe_load(
    put: Callable[[Any, Path], Path], net: nn.Module, state: dict[str, Tensor], tmp_path: Path
) -> None:
    path = put({"model": net, "epoch": 3}, tmp_path / "best.pth")
    with pytest.raises(CheckpointError, match=r"whole pickled model \(tiny_network") as caught:
        load_checkpoint(path, Source())
    assert "--unsafe-load" in caught.value.hint
    model, account = load_checkpoint(path, Source(), unsafe_load=True)
    assert account.key == "model"
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_a_pickled_model_whose_class_is_gone(tmp_path: Path) -> None:
    class Gone(TinyNet):
        pass

    Gone.__qualname__ = Gone.__name__ = "Gone"
    Gone.__module__ = "my_training_project"
    module = types.ModuleType("my_training_project")
    module.Gone = Gone  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    try:
        path = in_a_zip(Gone(), tmp_path / "best.pth")
    finally:
        del sys.modules[module.__name__]
    before = list(sys.path)
    with pytest.raises(CheckpointError, match="my_training_project"):
        load_checkpoint(path, Source(), unsafe_load=True)
    assert sys.path == before


@pytest.mark.parametrize("put", PLACES[:3])
def test_harmless_globals_are_let_through(
    put: Callable[[Any, Path], Path], state: dict[str, Tensor], tmp_path: Path
) -> None:
    beside = {
        "args": argparse.Namespace(lr=0.1, out=pathlib.Path("runs") / "a", kind=int),
        "simple": types.SimpleNamespace(a=1),
        "best": np.float64(0.71),
        "steps": np.int64(3),
        "flag": np.bool_(True),
        "curve": np.arange(3.0),
        "names": np.array(["a", "b"]),
        "dtype": np.dtype("float32"),
        "when": datetime.datetime(2024, 5, 1, tzinfo=datetime.timezone.utc),
        "took": datetime.timedelta(hours=1),
        "order": OrderedDict(a=1),
        "windows": pathlib.PureWindowsPath("C:/runs"),
        "generator": np.random.default_rng(0).bit_generator.state,
        "torch": torch.__version__,
        "set": {1, 2},
        "slice": slice(1, 2),
    }
    path = put({"state_dict": state, **beside}, tmp_path / "best.pth")
    _, account = load_checkpoint(path, Source())
    assert account.key == "state_dict"


def test_a_path_saved_on_windows_opens_here(state: dict[str, Tensor], tmp_path: Path) -> None:
    path = in_a_zip({"model": state, "out": pathlib.PurePosixPath("a")}, tmp_path / "posix.pth")
    with (
        zipfile.ZipFile(path) as posix,
        zipfile.ZipFile(tmp_path / "windows.pth", "w") as windows,
    ):
        for name in posix.namelist():
            content = posix.read(name)
            windows.writestr(name, content.replace(b"PurePosixPath", b"WindowsPath"))
    _, account = load_checkpoint(tmp_path / "windows.pth", Source())
    assert account.loaded == len(state)


def test_loading_leaves_the_users_list_of_safe_globals_alone(
    state: dict[str, Tensor], tmp_path: Path
) -> None:
    torch.serialization.add_safe_globals([argparse.Namespace])
    try:
        before = set(torch.serialization.get_safe_globals())
        load_checkpoint(in_a_zip(state, tmp_path / "best.pth"), Source())
        assert set(torch.serialization.get_safe_globals()) == before
    finally:
        torch.serialization.clear_safe_globals()


def test_a_pickle_that_claims_gigabytes_is_refused_before_they_are_taken(tmp_path: Path) -> None:
    """PROTO 2, NONE, LONG_BINPUT 2**31: Python's unpickler would make a memo of 32 GB."""
    (tmp_path / "bomb.pkl").write_bytes(b"\x80\x02Nr\x00\x00\x00\x80.")
    with pytest.raises(CheckpointError, match="beyond the pickle"):
        load_checkpoint(tmp_path / "bomb.pkl", Source())


def test_a_pickle_cannot_change_the_classes_it_is_given(tmp_path: Path) -> None:
    """GLOBAL Namespace, then BUILD on the class itself with an attribute to set."""
    attack = b"\x80\x02cargparse\nNamespace\n(N}X\x05\x00\x00\x00takenNstb."
    (tmp_path / "attack.pkl").write_bytes(attack)
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path / "attack.pkl", Source())
    assert not hasattr(argparse.Namespace, "taken")


def test_arrays_of_objects_are_not_weights(tmp_path: Path) -> None:
    arrays = {"head.weight": np.array([None, 1], dtype=object)}
    (tmp_path / "objects.pkl").write_bytes(pickle.dumps(arrays))
    with pytest.raises(CheckpointError, match="no tensors"):
        load_checkpoint(tmp_path / "objects.pkl", Source())
