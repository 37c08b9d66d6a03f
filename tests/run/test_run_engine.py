"""How a run is set up, and that the way it is set up does not change what comes out."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pictures import open_image
from torch import Tensor, nn

from hookscope.cli.app import run
from hookscope.errors import PictureError
from hookscope.models.opening import OpenedModel, open_model
from hookscope.run import engine
from hookscope.run.clock import Clock
from hookscope.run.engine import engine_for, usable_cores
from hookscope.run.forward import failures_in_words, on_device, out_of_memory, running

NETS = """
import threading
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Conv2d(3, 8, 5, stride=4)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(8, 8, 3, stride=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.second(self.act(self.norm(self.first(x))))
        return self.head(x.mean((2, 3)))


def plain():
    return Net()


def uncopyable():
    net = Net()
    net.guard = threading.Lock()
    return net
"""


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nets") / "nets.py"
    path.write_text(NETS)
    return path


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, chelsea: Path) -> Path:
    """Eight pictures of different sizes, one of them torn."""
    folder = tmp_path_factory.mktemp("photos")
    picture = open_image(chelsea).convert("RGB")
    for number in range(7):
        picture.rotate(number).resize((90 + 7 * number, 80)).save(folder / f"p{number}.png")
    (folder / "p5b.png").write_bytes((folder / "p5.png").read_bytes()[:400])
    return folder


def opened(nets: Path, **changes: Any) -> OpenedModel:
    from dataclasses import replace

    return replace(open_model(f"{nets}:{changes.pop('net', 'plain')}"), **changes)


class NoJob:
    clock = Clock()


def set_up(model: OpenedModel, pictures: int, batch_size: int | None = None) -> engine.Engine:
    return engine_for(NoJob(), model, pictures, batch_size, print)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pictures", "asked", "workers", "batch"),
    [
        *((0, None, 1, 1), (1, None, 1, 1), (3, None, 3, 1), (6, None, 3, 2), (1000, None, 4, 4)),
        *((1000, 16, 4, 16), (17, 16, 2, 16), (3, 16, 1, 16)),
    ],
)
def test_every_core_gets_its_share(
    nets: Path, monkeypatch: Any, pictures: int, asked: int, workers: int, batch: int
) -> None:
    monkeypatch.setattr(engine, "usable_cores", lambda: 4)
    found = set_up(opened(nets), pictures, asked)
    assert (len(found.networks), found.batch_size, found.staged) == (workers, batch, False)


def test_a_model_that_cannot_be_copied_gets_its_threads_around_it(
    nets: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(engine, "usable_cores", lambda: 4)
    found = set_up(opened(nets, net="uncopyable"), 100)
    assert (len(found.networks), found.staged, found.helpers) == (1, True, 4)
    assert not set_up(opened(nets, net="uncopyable"), 1).staged


def test_an_accelerator_has_one_network_with_threads_around_it(
    nets: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(engine, "usable_cores", lambda: 4)
    found = set_up(opened(nets, device=torch.device("mps")), 100)
    assert (len(found.networks), found.staged, found.helpers) == (1, True, 4)


def test_a_model_of_one_batch_size_gets_it(nets: Path) -> None:
    found = set_up(opened(nets, batch_size=2), 100)
    assert (found.batch_size, found.only) == (2, 2)
    assert set_up(opened(nets, batch_size=2), 100, 8).only == 2


def test_cores_are_shared_by_the_ranks_of_a_machine(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(engine, "_quota", lambda: math.inf)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert usable_cores() == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert usable_cores() == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "16")
    assert usable_cores() == 1
    monkeypatch.setattr(engine, "_quota", lambda: 2.5)
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert usable_cores() == 2


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000\n", math.inf), ("250000 100000\n", 2.5), ("?", math.inf)]
)
def test_a_container_may_have_less_than_the_machine(
    tmp_path: Path, text: str, cores: float
) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert engine._quota(tmp_path / "cpu.max") == cores
    assert engine._quota(tmp_path / "missing") == math.inf


WAYS = {
    "one core": ("plain", 1, ()),
    "chains": ("plain", 3, ()),
    "chains, batches of 1": ("plain", 3, ("--batch-size", "1")),
    "stages": ("uncopyable", 3, ()),
    "stages, batches of 3": ("uncopyable", 3, ("--batch-size", "3")),
}


def everything(
    monkeypatch: Any, capsys: Any, nets: Path, photos: Path, out: Path, way: str
) -> tuple[list[str], dict[str, Any]]:
    """What is printed, and what is in the files."""
    net, cores, flags = WAYS[way]
    monkeypatch.setattr(engine, "usable_cores", lambda: cores)
    monkeypatch.chdir(nets.parent)
    spec = f"nets.py:{net}"
    capsys.readouterr()
    for command in (("capture", "-l", "norm"), ("gradcam", "-l", "second", "--class", "3")):
        name, *rest = command
        arguments = [name, str(photos), "-m", spec, *rest, "--save", "npy", *flags, "-o", str(out)]
        assert run(arguments) == 1  # for the torn picture
    printed = capsys.readouterr().out.replace(str(out), "OUT").replace(net, "NET")
    files: dict[str, Any] = {}
    for path in sorted(out.iterdir()):
        name = path.name.replace(net, "NET")
        if path.suffix == ".npy":
            files[name] = np.load(path)
        elif path.suffix == ".png":
            files[name] = np.asarray(open_image(path).convert("RGB"), dtype=int)
    return printed.splitlines(), files


def test_names_numbers_and_order_do_not_depend_on_the_way(
    monkeypatch: Any, capsys: Any, nets: Path, photos: Path, tmp_path: Path
) -> None:
    lines, files = everything(monkeypatch, capsys, nets, photos, tmp_path / "0", "one core")
    assert len(lines) == len(files) == 7 * 2 * 2
    for number, way in enumerate(WAYS, start=1):
        out = tmp_path / str(number)
        other_lines, other_files = everything(monkeypatch, capsys, nets, photos, out, way)
        assert other_lines == lines
        assert list(other_files) == list(files)
        for name, found in other_files.items():
            if name.endswith(".npy"):
                np.testing.assert_allclose(found, files[name], atol=1e-5, rtol=1e-5)
            else:  # a number that moved by 1e-6 may be rounded to the next colour
                assert np.mean(found != files[name]) < 0.01


def test_the_network_runs_without_gradients_and_in_the_asked_precision() -> None:
    layer, x = nn.Linear(4, 4), torch.rand(2, 4)
    with running("fp32", x):
        assert layer(x).is_inference()
        assert layer(x).dtype == torch.float32
    with running("bf16", x):
        assert layer(x).dtype == torch.bfloat16
    assert layer(x).requires_grad
    assert layer(x).dtype == torch.float32


def test_what_a_network_says_of_its_input_becomes_a_picture_error() -> None:
    layer, x = nn.Linear(4, 4), torch.rand(2, 3)
    said = "failed on an input of 3: mat1 and mat2"
    with pytest.raises(PictureError, match=said), failures_in_words(x):
        layer(x)
    lack = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")
    with pytest.raises(RuntimeError, match="can't allocate"), failures_in_words(x):
        raise lack
    assert out_of_memory(lack)
    assert out_of_memory(RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"))
    assert out_of_memory(RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"))
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory(ValueError("can't allocate memory"))


def test_a_batch_is_its_members() -> None:
    tensors = [torch.rand(3, 4, 5) for _ in range(3)]
    batch = on_device(tensors, torch.device("cpu"))
    assert torch.equal(batch, torch.stack(tensors))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_a_gpu_gives_the_numbers_of_the_cpu_and_the_same_each_time(
    nets: Path, photos: Path, tmp_path: Path
) -> None:
    def maps(device: str, out: Path, *more: str) -> dict[str, Any]:
        for command in (("capture", "-l", "features.1"), ("gradcam", "--class", "3")):
            name, *rest = command
            flags = ["-m", "mobilenet_v2", "-w", "none", "--save", "npy", "--device", device]
            assert run([name, str(photos), *flags, *rest, *more, "-o", str(out)]) == 1
        return {path.name: path.read_bytes() for path in out.iterdir() if path.suffix != ".jsonl"}

    def arrays(out: Path) -> dict[str, np.ndarray]:
        return {path.name: np.load(path) for path in sorted(out.glob("*.npy"))}

    first, again = maps("cuda", tmp_path / "1"), maps("cuda", tmp_path / "2")
    assert first == again
    maps("cpu", tmp_path / "3")
    maps("cuda", tmp_path / "4", "--batch-size", "3")
    expected = arrays(tmp_path / "3")
    for other in ("1", "4"):
        found = arrays(tmp_path / other)
        assert list(found) == list(expected)
        for name, values in found.items():
            scale = np.abs(expected[name]).max()
            np.testing.assert_allclose(values, expected[name], atol=1e-4 * scale)
    maps("cuda", tmp_path / "5", "--precision", "bf16")
    for name, values in arrays(tmp_path / "5").items():
        assert np.corrcoef(values.ravel(), expected[name].ravel())[0, 1] > 0.98


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_a_batch_goes_to_the_gpu_whole() -> None:
    tensors: list[Tensor] = [torch.rand(3, 4, 5) for _ in range(3)]
    for _ in range(10):
        batch = on_device(tensors, torch.device("cuda"))
        assert torch.equal(batch.cpu(), torch.stack(tensors))


def test_a_program_of_one_batch_size_takes_any_number_of_pictures(
    nets: Path, photos: Path, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(engine, "usable_cores", lambda: 2)
    model = open_model(f"{nets}:plain").module
    program = torch.export.export(model, (torch.rand(2, 3, 224, 224),))
    torch.export.save(program, tmp_path / "net.pt2")
    found = []
    for spec in (f"{nets}:plain", str(tmp_path / "net.pt2")):
        out = tmp_path / str(len(found))
        flags = ["-l", "second", "--pool", "mean", "-o", str(out)]
        assert run(["capture", str(photos), "-m", spec, *flags]) == 1  # for the torn picture
        assert "1 failed" in capsys.readouterr().err
        found.append(np.load(next(out.glob("*.npy"))))
    assert found[0].shape == (7, 8)
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)
