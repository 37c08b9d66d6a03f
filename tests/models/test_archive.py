"""torch.export archives: the same numbers under the same layer names, at the program's size."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from hookscope.errors import ModelError, UsageError, WeightsError
from hookscope.models.archive import ArchiveSource
from hookscope.models.spec import resolve


class Small(nn.Module):
    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 4, 3, stride=2), nn.ReLU(inplace=True))
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.stem(x).mean((2, 3)))


def save(path: Path, size: tuple[int, int] = (48, 48), *, free: bool = False) -> nn.Module:
    model = Small(1 if size[0] == 28 else 3).eval()
    x = torch.rand(2, model.stem[0].in_channels, *size)
    axes = {0: torch.export.Dim("batch", min=1)}
    program = torch.export.export(model, (x,), dynamic_shapes=(axes,) if free else None)
    torch.export.save(program, path)
    return model


def test_same_numbers_same_names_hooks_fire(tmp_path: Path) -> None:
    model = save(tmp_path / "small.pt2")
    source = ArchiveSource.opened(tmp_path / "small.pt2", {})
    trained = source.pretrained(None, offline=True)
    x = torch.rand(2, 3, 48, 48)
    assert torch.equal(trained.module.eval()(x), model(x))
    names = [name for name, _ in model.named_modules()]
    assert [name for name, _ in trained.module.named_modules()] == names
    fired: list[tuple[int, ...]] = []
    trained.module.get_submodule("stem.0").register_forward_hook(
        lambda _, __, output: fired.append(tuple(output.shape))
    )
    trained.module(x)
    assert fired == [(2, 4, 23, 23)]
    assert (source.name, source.kind, trained.weights) == ("small", "archive", None)


def test_each_build_is_a_network_of_its_own(tmp_path: Path) -> None:
    save(tmp_path / "small.pt2")
    source = ArchiveSource.opened(tmp_path / "small.pt2", {})
    first, second = source.build(), source.build()
    assert first is not second
    assert resolve(str(tmp_path / "small.pt2")).kind == "archive"
    assert first.get_submodule("stem.0") is not second.get_submodule("stem.0")


@pytest.mark.parametrize(
    ("size", "resize", "crop"),
    [((48, 48), 55, (48, 48)), ((40, 64), (40, 64), None), ((224, 224), 256, (224, 224))],
)
def test_pictures_come_at_the_programs_own_size(
    tmp_path: Path, size: tuple[int, int], resize: object, crop: object
) -> None:
    save(tmp_path / "small.pt2", size)
    source = ArchiveSource.opened(tmp_path / "small.pt2", {})
    preprocessing = source.preprocessing(source.build(), None)
    assert (preprocessing.resize, preprocessing.crop) == (resize, crop)
    assert preprocessing.input_size == size


def test_one_channel_is_grey_and_not_normalised(tmp_path: Path) -> None:
    save(tmp_path / "small.pt2", (28, 28))
    source = ArchiveSource.opened(tmp_path / "small.pt2", {})
    preprocessing = source.preprocessing(source.build(), None)
    assert (preprocessing.channels, preprocessing.mean) == (1, None)


def test_the_batch_size_is_fixed_unless_exported_free(tmp_path: Path) -> None:
    save(tmp_path / "fixed.pt2")
    save(tmp_path / "free.pt2", free=True)
    assert ArchiveSource.opened(tmp_path / "fixed.pt2", {}).batch_size == 2
    assert ArchiveSource.opened(tmp_path / "free.pt2", {}).batch_size is None


def test_an_archive_has_its_own_weights_and_no_arguments(tmp_path: Path) -> None:
    save(tmp_path / "small.pt2")
    source = ArchiveSource.opened(tmp_path / "small.pt2", {})
    for name in ("none", "DEFAULT"):
        with pytest.raises(WeightsError, match="inside it"):
            source.untrained() if name == "none" else source.pretrained(name, offline=True)
    with pytest.raises(UsageError, match="constructor"):
        ArchiveSource.opened(tmp_path / "small.pt2", {"width": 3})
    assert not source.takes("num_classes")


# Writing TorchScript, which torch announces the end of, to see that it is recognised.
@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_torchscript_is_refused_with_its_way_out(tmp_path: Path) -> None:
    torch.jit.script(Small()).save(str(tmp_path / "scripted.pt"))
    with pytest.raises(ModelError, match="take no hooks") as raised:
        ArchiveSource.opened(tmp_path / "scripted.pt", {})
    assert "--model NAME --checkpoint" in str(raised.value)


@pytest.mark.parametrize("name", ["weights.pth", "weights"])
def test_a_state_dict_is_refused_with_its_way_out(tmp_path: Path, name: str) -> None:
    torch.save(Small().state_dict(), tmp_path / name)
    with pytest.raises(ModelError, match=f"{name} holds weights") as raised:
        ArchiveSource.opened(tmp_path / name, {})
    assert f"--checkpoint {tmp_path / name}" in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut"])
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "thing").write_bytes(content)
    with pytest.raises(ModelError, match=r"not a torch\.export archive"):
        ArchiveSource.opened(tmp_path / "thing", {})


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "small.pt2")
    with (
        zipfile.ZipFile(tmp_path / "small.pt2") as whole,
        zipfile.ZipFile(tmp_path / "cut.pt2", "w") as cut,
    ):
        for name in whole.namelist():
            if "weights" not in name:
                cut.writestr(name, whole.read(name))
    with pytest.raises(ModelError, match="cannot be opened"):
        ArchiveSource.opened(tmp_path / "cut.pt2", {})
