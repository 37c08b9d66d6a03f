"""Making a builder's own code take the weights from our hands: no download, no copy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from torch import Tensor, nn
from torchvision.models import WeightsEnum

from hookscope.models.structure import replaced


class _Handed(OrderedDict[str, Tensor]):
    """A state dict that came from us, through whatever the builder does to it."""


@contextmanager
def weights_from(state_dict: Mapping[str, Tensor] | None) -> Iterator[None]:
    """A block in which torchvision's weights entries give ``state_dict`` instead of downloading.

    So a builder called with ``weights=entry`` makes exactly the network that the entry asks for:
    image size, classes, heads removed after loading, constants set afterwards. The tensors become
    the parameters themselves (no copy, a mapped file stays mapped), in the network's precision.
    With ``None`` nothing is loaded at all: the structure alone.
    """
    handed = _Handed(state_dict or {})
    if hasattr(state_dict, "_metadata"):
        handed._metadata = state_dict._metadata  # type: ignore[attr-defined, union-attr]
    load = nn.Module.load_state_dict

    def get_state_dict(entry: WeightsEnum, *_: Any, **__: Any) -> _Handed:
        return handed

    def load_state_dict(
        module: nn.Module, given: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        if not isinstance(given, _Handed):
            return load(module, given, strict=strict, assign=assign)
        if not given:
            return load(nn.Module(), {})
        _fit_precision(given, module)
        return load(module, given, strict=strict, assign=True)

    with (
        replaced(WeightsEnum, "get_state_dict", get_state_dict),
        replaced(nn.Module, "load_state_dict", load_state_dict),
    ):
        yield


@contextmanager
def number_of_classes(entry: WeightsEnum, count: int | None) -> Iterator[None]:
    """A block in which ``entry`` speaks of ``count`` classes; ``None`` leaves it alone."""
    if count is None or "categories" not in entry.meta:
        yield
        return
    with replaced(entry.value, "meta", {**entry.meta, "categories": [""] * count}):
        yield


def _fit_precision(state_dict: _Handed, module: nn.Module) -> None:
    """``assign`` would keep half precision and odd strides, on which results depend."""
    for name, own in chain(module.named_parameters(), module.named_buffers()):
        given = state_dict.get(name)
        if given is not None and not given.is_quantized:
            state_dict[name] = given.to(own.dtype).contiguous()
