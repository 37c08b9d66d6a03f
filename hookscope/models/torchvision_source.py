"""Networks by their torchvision names, with or without torchvision's weights."""

from __future__ import annotations

import inspect
import typing
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from torchvision import models
from torchvision.models import WeightsEnum

from hookscope.errors import ModelError, UsageError, WeightsError, did_you_mean
from hookscope.models import presets, weights_cache
from hookscope.models.handover import number_of_classes, weights_from
from hookscope.models.preprocess import Preprocessing
from hookscope.models.source import Trained
from hookscope.models.structure import without_initialisation

_OURS = ("weights", "weights_backbone", "progress")


@dataclass(frozen=True)
class TorchvisionSource:
    """One builder of ``torchvision.models``; a ``ModelSource``."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "torchvision"
    batch_size: int | None = None

    @classmethod
    def named(cls, text: str, arguments: Mapping[str, Any]) -> TorchvisionSource:
        name = text.lower()
        if name not in models.list_models():
            raise ModelError(
                f"no torchvision model is called {text!r}",
                f"{did_you_mean(name, models.list_models())} A model of your own is "
                "path/to/net.py:factory, one of timm's is timm:NAME.",
            )
        for argument in _OURS:
            if argument in arguments:
                raise UsageError(
                    f"--model-arg {argument} is not for the user",
                    "Weights are chosen by --weights.",
                )
        return cls(name, arguments)

    @property
    def classes(self) -> int | None:
        return self.arguments.get("num_classes", len(_categories(self.default_entry)) or None)

    def takes(self, argument: str) -> bool:
        if argument == "num_classes":
            return "categories" in self.default_entry.meta
        return argument == "aux_heads" and self._aux_argument is not None

    def build(
        self,
        *,
        num_classes: int | None = None,
        aux_heads: bool | None = None,
        weights: str | None = None,
    ) -> nn.Module:
        arguments = dict(self.arguments)
        num_classes = arguments.pop("num_classes", num_classes)
        if aux_heads is not None and self._aux_argument is not None:
            arguments.setdefault(self._aux_argument, aux_heads)
        entry = self.entry(weights or "DEFAULT")
        if _holds_quantised(type(entry)):
            arguments["quantize"] = True
        with weights_from(None), number_of_classes(entry, num_classes):
            try:
                return self._call(weights=entry, **arguments)
            except ValueError:
                # What the user asked for contradicts the default weights: the user wins.
                return self._plain(arguments, num_classes)

    def untrained(self, *, num_classes: int | None = None) -> nn.Module:
        arguments = dict(self.arguments)
        return self._plain(arguments, arguments.pop("num_classes", num_classes))

    def pretrained(
        self, weights: str | None, *, offline: bool, num_classes: int | None = None
    ) -> Trained:
        entry = self.entry(weights or "DEFAULT")
        categories = _categories(entry)
        arguments = dict(self.arguments)
        classes = arguments.pop("num_classes", num_classes)
        if classes not in (None, len(categories)):
            raise WeightsError(
                f"the weights {entry.name} of {self.name} have {len(categories)} classes, "
                f"not {classes}",
                "Another number goes with --checkpoint FILE or --weights none.",
            )
        file = self._file(entry, offline)
        if _holds_quantised(type(entry)):
            arguments["quantize"] = True
        try:
            with without_initialisation(), weights_from(weights_cache.read(file)):
                module = self._call(weights=entry, **arguments)
        except ValueError as error:
            raise WeightsError(
                f"{self.name} with the weights {entry.name}: {error}",
                "These weights fix that argument; --weights none and --checkpoint leave it free.",
            ) from None
        except RuntimeError as error:
            raise WeightsError(
                f"the cached weights {file} do not fit {self.name}: {error}"
            ) from None
        return Trained(module, entry.name, categories)

    def class_names(self, weights: str | None) -> tuple[str, ...]:
        return _categories(self.entry(weights or "DEFAULT"))

    def preprocessing(self, model: nn.Module, weights: str | None) -> Preprocessing:
        entry = self.default_entry if weights is None else self.entry(weights)
        preset = presets.of_torchvision(entry.transforms(), entry.meta)
        return presets.of_model(model, preset) if weights is None else preset

    @property
    def entries(self) -> dict[str, WeightsEnum]:
        """Name -> entry of all weights for this model; the ones that DEFAULT belongs to first."""
        kinds = _weights_enums(self._builder)
        if not self.arguments.get("quantize"):
            kinds.sort(key=_holds_quantised)
        return {entry.name: entry for kind in kinds for entry in kind}

    @property
    def default_entry(self) -> WeightsEnum:
        first = next(iter(self.entries.values()))
        return type(first)["DEFAULT"]

    def entry(self, name: str) -> WeightsEnum:
        """The entry called ``name``, with or without the name of its enum before it."""
        plain = name.rpartition(".")[2].upper()
        if plain == "DEFAULT":
            return self.default_entry
        if plain not in self.entries:
            known = ["DEFAULT", *self.entries, "none"]
            raise WeightsError(
                f"{self.name} has no weights called {name!r}", f"It has {', '.join(known)}."
            )
        return self.entries[plain]

    def _file(self, entry: WeightsEnum, offline: bool) -> Path:
        path = weights_cache.cached_file(entry.url)
        if path.exists():
            return path
        try:
            if offline:
                raise WeightsError("the run is --offline")
            return weights_cache.download(entry.url)
        except WeightsError as error:
            raise WeightsError(
                f"the weights {entry.name} of {self.name} are not cached, and {error.message}",
                self._ways_out(entry),
            ) from None

    def _ways_out(self, entry: WeightsEnum) -> str:
        cached = [
            name
            for name, other in self.entries.items()
            if weights_cache.cached_file(other.url).exists()
        ]
        have = (
            f"In the cache for {self.name}: {', '.join(cached)} (--weights {cached[0]}).\n"
            if cached
            else f"Nothing is in the cache for {self.name}.\n"
        )
        path = weights_cache.cached_file(entry.url)
        return (
            f"{have}Ways out: copy {path.name} into {path.parent}, load a file of your own with "
            "--checkpoint FILE, or take random weights with --weights none."
        )

    @property
    def _builder(self) -> Callable[..., nn.Module]:
        return models.get_model_builder(self.name)

    @property
    def _aux_argument(self) -> str | None:
        if "aux_loss" in inspect.signature(self._builder).parameters:
            return "aux_loss"
        return "aux_logits" if self.name.endswith(("googlenet", "inception_v3")) else None

    def _plain(self, arguments: dict[str, Any], num_classes: int | None) -> nn.Module:
        if num_classes is not None:
            arguments = {**arguments, "num_classes": num_classes}
        if "weights_backbone" in inspect.signature(self._builder).parameters:
            arguments["weights_backbone"] = None
        try:
            return self._call(weights=None, **arguments)
        except ValueError as error:
            raise ModelError(f"{self.name} cannot be built: {error}") from None

    def _call(self, **arguments: Any) -> nn.Module:
        with warnings.catch_warnings():
            # About initialisation and auxiliary heads, which are chosen here on purpose.
            warnings.simplefilter("ignore")
            try:
                return self._builder(progress=False, **arguments)
            except (TypeError, AttributeError, AssertionError) as error:
                given = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
                raise ModelError(f"{self.name}({given}) cannot be built: {error}") from None


def _weights_enums(builder: Callable[..., nn.Module]) -> list[type[WeightsEnum]]:
    annotation = inspect.signature(builder).parameters["weights"].annotation
    return [
        kind
        for kind in typing.get_args(annotation)
        if isinstance(kind, type) and issubclass(kind, WeightsEnum)
    ]


def _holds_quantised(kind: type[WeightsEnum]) -> bool:
    return "Quantized" in kind.__name__


def _categories(entry: WeightsEnum) -> tuple[str, ...]:
    return tuple(entry.meta.get("categories", ()))
