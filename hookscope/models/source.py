"""What a MODEL argument stands for: something that has a name and can build a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import nn

from hookscope.models.preprocess import Preprocessing


@dataclass(frozen=True)
class Trained:
    """A network with the weights that its source offers.

    ``weights`` is the entry's own name (never ``DEFAULT``), or ``None`` where the network came
    with whatever its maker put in; ``classes`` are the names of the classes, where known.
    """

    module: nn.Module
    weights: str | None
    classes: tuple[str, ...] = ()


class ModelSource(Protocol):
    """Where a network comes from.

    ``name`` is torchvision's, timm's or the factory's name, or the archive's stem; ``kind`` is
    ``torchvision``, ``timm``, ``factory`` or ``archive``; ``classes`` the number of classes that
    ``build()`` gives, where the source knows it; ``batch_size`` the only one that the network
    takes, ``None`` almost always. Everything raises ``ModelError``.
    """

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def classes(self) -> int | None: ...

    @property
    def batch_size(self) -> int | None: ...

    def takes(self, argument: str) -> bool:
        """Whether ``build`` can honour ``num_classes`` or ``aux_heads``."""
        ...

    def build(
        self,
        *,
        num_classes: int | None = None,
        aux_heads: bool | None = None,
        weights: str | None = None,
    ) -> nn.Module:
        """A new network, on the CPU, in the shape that the ``weights`` (default: those) have.

        Downloads nothing. ``num_classes`` and ``aux_heads`` (auxiliary classifiers kept or not)
        are ignored where ``takes`` says no; a number that the user gave as a model argument wins.
        Wrap in ``without_initialisation()`` when every parameter will be loaded.
        """
        ...

    def untrained(self, *, num_classes: int | None = None) -> nn.Module:
        """What the ordinary constructor gives without weights: ``--weights none``."""
        ...

    def pretrained(
        self, weights: str | None, *, offline: bool, num_classes: int | None = None
    ) -> Trained:
        """The network with the weights of that name; ``None``: what the source itself prefers.

        Downloads what is not cached, unless ``offline``. Raises ``WeightsError`` as well, where
        the weights are for another number of classes too.
        """
        ...

    def class_names(self, weights: str | None) -> tuple[str, ...]:
        """What the classes of the weights of that name are called, where the source knows it."""
        ...

    def preprocessing(self, model: nn.Module, weights: str | None) -> Preprocessing:
        """How pictures get into ``model``; ``weights`` as in ``Trained``."""
        ...
