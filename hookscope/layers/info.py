"""What is known about one layer of a model."""

from __future__ import annotations

from dataclasses import dataclass

from hookscope.layout import Kind

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerInfo:
    """One row of ``list-layers``; the fields are those of its JSON, and the unknown is None.

    ``depth`` is the number of dots in the name. ``parameters`` and ``trainable`` count numbers,
    a shared tensor once. ``output_shape`` has the batch axis (1); it is a tuple of shapes where
    one call returns several tensors, and that of the last call where the module runs often.
    ``calls`` is how often it runs in one forward pass, ``cam_default`` whether ``gradcam`` takes it
    by itself; both are unknown where no whole pass could be run.
    """

    name: str
    type: str
    depth: int
    parameters: int
    trainable: int
    output_shape: Shape | tuple[Shape, ...] | None = None
    layout: Kind | None = None
    calls: int | None = None
    overwritten_in_place: bool | None = None
    cam_default: bool | None = None
