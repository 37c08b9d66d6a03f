"""A user's own network: a class or function in a file or package of theirs."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from hookscope.errors import ModelError, UsageError, WeightsError, did_you_mean
from hookscope.models import presets, user_code
from hookscope.models.preprocess import Preprocessing
from hookscope.models.source import Trained


@dataclass(frozen=True)
class FactorySource:
    """One callable that returns an ``nn.Module``; a ``ModelSource``."""

    name: str
    make: Callable[..., Any]
    arguments: Mapping[str, Any]
    kind: str = "factory"
    batch_size: int | None = None
    classes: int | None = None

    @classmethod
    def located(cls, spec: str, arguments: Mapping[str, Any]) -> FactorySource:
        """The factory that ``path/to/net.py:factory`` or ``package.module:factory`` names."""
        place, _, attribute = spec.rpartition(":")
        if not place:
            place, attribute = attribute, ""
        is_file = place.endswith(".py")
        if is_file and not Path(place).is_file():
            raise ModelError(f"there is no file {place}")
        module = user_code.from_file(Path(place)) if is_file else user_code.from_package(place)
        if not attribute:
            raise UsageError(
                f"--model {spec} does not say which function or class makes the model",
                f"For example: {place}:{next(iter(_candidates(module)), 'factory')}",
            )
        source = cls(attribute, _attribute(module, attribute, place), arguments)
        source._check_arguments(arguments)
        return source

    def takes(self, argument: str) -> bool:
        if argument != "num_classes":
            return False
        parameters = self._parameters()
        return argument in parameters or any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )

    def build(
        self,
        *,
        num_classes: int | None = None,
        aux_heads: bool | None = None,
        weights: str | None = None,
    ) -> nn.Module:
        self._check_weights(weights)
        arguments = dict(self.arguments)
        if num_classes is not None and self.takes("num_classes"):
            arguments.setdefault("num_classes", num_classes)
        # What user code prints must not get among the data on stdout.
        with contextlib.redirect_stdout(sys.stderr), user_code.own_line_shown(self.name):
            made = self.make(**arguments)
        if not isinstance(made, nn.Module):
            raise ModelError(
                f"{self.name}() returned {_described(made)}, not a torch.nn.Module",
                "Name a class or function that returns the network alone.",
            )
        return made

    def untrained(self, *, num_classes: int | None = None) -> nn.Module:
        return self.build(num_classes=num_classes)

    def pretrained(
        self, weights: str | None, *, offline: bool, num_classes: int | None = None
    ) -> Trained:
        return Trained(self.build(num_classes=num_classes, weights=weights), None)

    def class_names(self, weights: str | None) -> tuple[str, ...]:
        return ()

    def preprocessing(self, model: nn.Module, weights: str | None) -> Preprocessing:
        return presets.of_unknown(model)

    def _check_weights(self, weights: str | None) -> None:
        if weights is not None:
            raise WeightsError(
                f"--weights {weights}: {self.name} is a factory, and its model is used as returned",
                "Its weights can come from --checkpoint FILE.",
            )

    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        try:
            return inspect.signature(self.make).parameters
        except (TypeError, ValueError):
            return {}

    def _check_arguments(self, arguments: Mapping[str, Any]) -> None:
        try:
            inspect.signature(self.make).bind(**arguments)
        except ValueError:
            return
        except TypeError as error:
            takes = ", ".join(map(str, self._parameters().values())) or "no arguments"
            raise ModelError(
                f"{self.name} cannot be called with these arguments: {error}",
                f"It takes {takes}; --model-arg KEY=VALUE gives them.",
            ) from None


def _attribute(module: ModuleType, name: str, place: str) -> Callable[..., Any]:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ModelError(f"{place} has no {name!r}", did_you_mean(name, _candidates(module)))
        found = getattr(found, part)
    if isinstance(found, nn.Module) or not callable(found):
        raise ModelError(
            f"{place}:{name} is {_described(found)}, not a class or function",
            f"Write a function that returns it: def make(): return {name}",
        )
    return found


def _candidates(module: ModuleType) -> list[str]:
    """What in a user's module may be meant: its own networks, its own functions, other networks."""

    def rank(value: Any) -> int:
        own = getattr(value, "__module__", None) == module.__name__
        return 2 * (not own) + (not _is_network(value))

    named = {
        name: rank(value)
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_")
    }
    return sorted((name for name in named if named[name] < 3), key=named.__getitem__)


def _is_network(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


def _described(value: Any) -> str:
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
