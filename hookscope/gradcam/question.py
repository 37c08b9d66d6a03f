"""What is asked of a network: which layers, classes and methods, and how."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from hookscope.errors import UsageError, did_you_mean
from hookscope.hooks.placing import refuse_hookless, selections
from hookscope.layers.addresses import Address
from hookscope.layout import Layout
from hookscope.maps import cam

PRECISIONS: Mapping[str, torch.dtype | None] = {
    "fp32": None,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True)
class Question:
    """One explanation's settings; see ``explain`` for each of them."""

    addresses: tuple[Address, ...]
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    classes: Sequence[int] | Tensor | None = None
    top_k: int = 1
    methods: tuple[str, ...] = ("gradcam",)
    output_key: str | None = None
    multi_label: bool = False
    background: int | None = None
    fuse: bool = False
    smooth: int = 0
    flip: bool = False
    seed: int = 0
    batch_size: int = 16
    precision: str = "fp32"
    progress: Callable[[int, int], None] | None = None

    def __post_init__(self) -> None:
        if not self.addresses:
            raise UsageError("no layer to explain")
        for method in self.methods:
            cam.check_method(method)
        if self.precision not in PRECISIONS:
            raise UsageError(
                f"unknown precision {self.precision!r}", did_you_mean(self.precision, PRECISIONS)
            )
        for name, value, least in (
            ("top_k", self.top_k, 1),
            ("smooth", self.smooth, 0),
            ("batch_size", self.batch_size, 1),
        ):
            if value < least:
                raise UsageError(f"{name} is {value}; it must be at least {least}")


def addresses_of(
    model: nn.Module, layers: Sequence[Address | str | nn.Module]
) -> tuple[Address, ...]:
    """The addresses that names, patterns, addresses and modules stand for."""
    if all(isinstance(layer, Address) for layer in layers):
        refuse_hookless(model)  # what the engine knows already needs no search a batch
        return tuple(dict.fromkeys(layer for layer in layers if isinstance(layer, Address)))
    chosen = selections(model, layers)
    return tuple(dict.fromkeys(Address(one.layer, one.call, one.item) for one in chosen))
