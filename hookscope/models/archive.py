"""Networks exported by ``torch.export``, with the layer names that they had before."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hookscope.errors import ModelError, UsageError, WeightsError
from hookscope.models import presets
from hookscope.models.preprocess import Preprocessing
from hookscope.models.source import Trained


@dataclass(frozen=True)
class ArchiveSource:
    """A program in a ``torch.export`` archive; a ``ModelSource`` whose weights are inside it.

    ``input_shape`` is that of its first input, ``None`` on an axis that is free.
    """

    name: str
    program: torch.export.ExportedProgram
    input_shape: tuple[int | None, ...] | None
    kind: str = "archive"
    classes: int | None = None

    @classmethod
    def opened(cls, path: Path, arguments: Mapping[str, Any]) -> ArchiveSource:
        if arguments:
            raise UsageError("--model-arg goes to a constructor, and an archive has none")
        _check_kind(path)
        try:
            program = torch.export.load(path)
        except Exception as error:
            first = str(error).partition("\n")[0]
            raise ModelError(f"the archive {path} cannot be opened: {first}") from None
        return cls(path.stem, program, _first_input(program))

    def takes(self, argument: str) -> bool:
        return False

    def build(
        self,
        *,
        num_classes: int | None = None,
        aux_heads: bool | None = None,
        weights: str | None = None,
    ) -> nn.Module:
        if weights is not None:
            raise WeightsError(f"--weights {weights}: the weights of an archive are inside it")
        return torch.export.unflatten(self.program)

    def untrained(self, *, num_classes: int | None = None) -> nn.Module:
        raise WeightsError("--weights none: the weights of an archive are inside it")

    def pretrained(
        self, weights: str | None, *, offline: bool, num_classes: int | None = None
    ) -> Trained:
        return Trained(self.build(weights=weights), None)

    def class_names(self, weights: str | None) -> tuple[str, ...]:
        return ()

    def preprocessing(self, model: nn.Module, weights: str | None) -> Preprocessing:
        shape = self.input_shape
        if shape is None or len(shape) != 4:
            return presets.of_model(model)
        _, channels, height, width = shape
        size = (height, width) if height is not None and width is not None else None
        return presets.adapted(Preprocessing(), channels or 3, size)

    @property
    def batch_size(self) -> int | None:
        """The only batch size that the program takes, ``None`` where any will do."""
        return self.input_shape[0] if self.input_shape else None


def _check_kind(path: Path) -> None:
    names = _names_inside(path)
    inside = {name.partition("/")[2] for name in names} | set(names)
    if "serialized_exported_program.json" in inside or any(
        name.startswith("models/") and name.endswith(".json") for name in inside
    ):
        return
    if "constants.pkl" in inside:
        raise ModelError(
            f"{path} is a TorchScript archive, and its modules take no hooks",
            f"Its weights can be used: --model NAME --checkpoint {path}",
        )
    if "data.pkl" in inside or path.suffix in (".pth", ".pt", ".ckpt", ".safetensors", ".bin"):
        raise ModelError(
            f"{path} holds weights, not a network",
            f"Say which network they belong to: --model NAME --checkpoint {path}",
        )
    raise ModelError(
        f"{path} is not a torch.export archive",
        "A model is torchvision's NAME, timm:NAME, path/to/net.py:factory, "
        "package.module:factory or a torch.export archive.",
    )


def _names_inside(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return []


def _first_input(program: torch.export.ExportedProgram) -> tuple[int | None, ...] | None:
    names = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                return tuple(side if isinstance(side, int) else None for side in value.shape)
    return None
