"""What flows through a model: found by forward passes on tensors that have shapes and no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import nn

from hookscope.layers.addresses import Address
from hookscope.layers.axes import TALLER, WIDER, Axes, Pictures, Shape, axes_of, other_size
from hookscope.layers.default_layer import default_layer
from hookscope.layers.fitting_size import likely_sizes
from hookscope.layers.outputs import Item, tensors_in
from hookscope.layers.signature import Size, input_channels
from hookscope.layers.trial import StandIn, Trial, first_that_runs
from hookscope.layout import Layout

# A model of more numbers, weights and outputs together, is not run on real data only to see its
# shapes.
MOST_NUMBERS = 250_000_000


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a forward pass with one picture.

    ``address.call`` is None where the module runs once. ``pictures`` says how those of a batch
    lie in the tensor: along ``layout.batch_axis`` (``axis``), in equal parts of axis 0 one after
    another (``folded``: windows of Swin), or not at all (``shared``). ``overwritten``: a later
    operation writes into it in place.
    """

    address: Address
    shape: Shape
    layout: Layout
    overwritten: bool
    pictures: Pictures = "axis"


@dataclass(frozen=True)
class Probe:
    """What one forward pass does, in execution order.

    ``order`` has every call as (layer, call from 1) as it ends, ``calls`` how often each layer
    runs. ``cam_default`` is the address that ``gradcam`` takes. ``problem`` is one sentence where
    no whole forward pass could be run; the rest then holds what ran until there. ``output`` has
    the shapes of the tensors that the model itself returned.
    """

    input_size: Size
    channels: int
    tensors: tuple[TensorInfo, ...]
    calls: Mapping[str, int]
    order: tuple[tuple[str, int], ...]
    cam_default: str | None
    problem: str | None
    output: tuple[Shape, ...] = ()

    def of(self, layer: str) -> list[TensorInfo]:
        return [info for info in self.tensors if info.address.layer == layer]


def probe(
    model: nn.Module,
    input_size: Size | None = None,
    *,
    channels: int | None = None,
    want_default: bool = True,
) -> Probe:
    """Find out shapes, layouts, calls and the default CAM layer of ``model``.

    Runs a copy of the modules on meta tensors; the model, its hooks and its memory are left
    alone. Where that fails, because control flow hangs on data, the model itself runs on the
    device it is on, if it is not too big. ``input_size``: H x W, by default the model's own fixed
    size, else 224 x 224, else the first usual size that it takes.
    """
    dry = StandIn(model, channels)
    sizes = [input_size] if input_size else likely_sizes(model)
    trial = first_that_runs(dry, sizes, traced=want_default)
    runner = dry
    if (trial.recording.doubtful or not trial.complete) and _may_run_on_data(model, trial):
        real = StandIn(model, channels, with_data=True)
        attempt = real.run(trial.feed, traced=want_default)
        if attempt.complete:
            runner = real
        if attempt.complete or len(attempt.recording.order) >= len(trial.recording.order):
            # Where both fail, the error is the one that the user would see.
            trial = attempt
    recording = trial.recording
    axes = _axes(trial, dry, runner)
    chosen = default_layer(recording, axes) if want_default and trial.complete else None
    tensors = []
    for value in recording.values:
        address = recording.address(value)
        meaning = axes[address]
        tensors.append(
            TensorInfo(address, value.shape, meaning.layout, value.overwritten, meaning.pictures)
        )
    return Probe(
        input_size=trial.feed.size,
        channels=channels or input_channels(model),
        tensors=tuple(tensors),
        calls=dict(recording.calls),
        order=recording.order,
        cam_default=None if chosen is None else str(chosen),
        problem=_sentence(trial),
        output=tuple(tuple(tensor.shape) for _, tensor in tensors_in(recording.output)),
    )


def _may_run_on_data(model: nn.Module, trial: Trial) -> bool:
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.is_meta or nn.parameter.is_lazy(tensor) for tensor in tensors):
        return False
    outputs = [value.tensor for value in trial.recording.values]
    return sum(tensor.numel() for tensor in (*tensors, *outputs)) <= MOST_NUMBERS


def _may_be_enlarged(trial: Trial) -> bool:
    """Whether a pass on data with two pictures of the other size is cheap enough."""
    outputs = sum(value.tensor.numel() for value in trial.recording.values)
    return 2 * TALLER * WIDER * outputs <= MOST_NUMBERS


def _axes(trial: Trial, dry: StandIn, runner: StandIn) -> dict[Address, Axes]:
    """The meaning of every value's axes, from passes with two pictures."""
    feed = trial.feed
    first = _shapes(trial)
    larger = replace(feed, size=other_size(feed.size), batch=2)
    compared = dry.run(larger, traced=False)
    unsure = compared.recording.doubtful or not compared.complete
    if unsure and runner is not dry and _may_be_enlarged(trial):
        # Where an operation needs data, what runs after it is seen with data only.
        attempt = runner.run(larger, traced=False)
        if attempt.complete or len(attempt.recording.order) > len(compared.recording.order):
            compared = attempt
    moved = _shapes(compared)
    # A model may bring every picture to one size itself (SSD).
    follows_input = any(_moves(shape, moved.get(key)) for key, shape in first.items())
    unclear = [key for key, shape in first.items() if not _has_batch_axis(shape, moved.get(key))]
    doubled: dict[_Key, Shape] = {}
    if unclear:
        doubled = _shapes(runner.run(replace(feed, batch=2), traced=False))
    grids: list[Size] = []
    meanings: dict[Address, Axes] = {}
    for value in trial.recording.values:
        key = (value.layer, value.call, value.item)
        found = axes_of(value.shape, moved.get(key), doubled.get(key), feed.size, grids)
        if not follows_input:
            found = replace(found, follows=None)
        meanings[trial.recording.address(value)] = found
        if found.layout.kind == "NCHW" and found.layout.batch_axis == 0:
            grids.append((value.shape[2], value.shape[3]))
        elif found.layout.kind == "NHWC" and found.layout.batch_axis == 0:
            grids.append((value.shape[1], value.shape[2]))
    return meanings


_Key = tuple[str, int, Item]


def _shapes(trial: Trial) -> dict[_Key, Shape]:
    return {(v.layer, v.call, v.item): v.shape for v in trial.recording.values}


def _moves(shape: Shape, moved: Shape | None) -> bool:
    """Whether more than a batch axis changed."""
    if moved is None or len(moved) != len(shape):
        return False
    return any(a != b and (a, b) != (1, 2) for a, b in zip(shape, moved, strict=True))


def _has_batch_axis(shape: Shape, moved: Shape | None) -> bool:
    if moved is None or len(moved) != len(shape):
        return False
    return any(a == 1 and b == 2 for a, b in zip(shape, moved, strict=True))


def _sentence(trial: Trial) -> str | None:
    failure = trial.recording.failure
    if failure is None:
        return None
    lines = str(failure).strip().splitlines()
    reason = lines[0] if lines else type(failure).__name__
    height, width = trial.feed.size
    return f"the model stops at an input of {height}x{width}: {reason[:200]}"
