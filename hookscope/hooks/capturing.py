"""What every capture is: hooks that are in place until they are taken away, and results by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TypeVar

from torch import nn

from hookscope.hooks.compiled import Uncompiled
from hookscope.hooks.handles import Handles
from hookscope.hooks.passes import watch_passes
from hookscope.hooks.placing import Placement
from hookscope.hooks.results import Activations

C = TypeVar("C", bound="Capturing")


class Capturing(ABC):
    """Hooks on the layers of ``placement``; a mapping from names to what they brought back.

    A subclass says in ``_register`` which hooks go on a layer, has its own state ready before it
    calls ``_place``, and forgets the results of the last pass in ``_begin``.
    """

    _handles: Handles

    @property
    @abstractmethod
    def activations(self) -> Activations:
        """The results by name; what was asked of an earlier pass stays as it was."""

    @abstractmethod
    def _register(self, layer: str, module: nn.Module) -> None:
        """Adds the hooks of one layer to ``self._handles``."""

    @abstractmethod
    def _begin(self, entered: str = "") -> None:
        """A pass begins at the module ``entered``: what lies below it is forgotten."""

    def _place(self, placement: Placement) -> None:
        """Places all hooks, or none where one of them fails."""
        self._handles = Handles()
        try:
            self._handles.add(Uncompiled(placement.model))
            watch_passes(placement, self._handles, self._begin)
            for layer, module in placement.modules.items():
                self._register(layer, module)
        except BaseException:
            self._handles.remove()
            raise

    def clear(self) -> None:
        """Forget the results; the hooks stay."""
        self._begin()

    def remove(self) -> None:
        """Take the hooks away, as often as it is called; the results stay."""
        self._handles.remove()

    def __enter__(self: C) -> C:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def __getitem__(self, name: str) -> Any:
        return self.activations[name]

    def __contains__(self, name: str) -> bool:
        return name in self.activations

    def __iter__(self) -> Iterator[str]:
        return iter(self.activations)

    def __len__(self) -> int:
        return len(self.activations)
