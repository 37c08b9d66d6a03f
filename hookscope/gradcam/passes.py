"""From a batch of pictures to raw maps: the passes through the network, forward and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hookscope.errors import ModelError, UsageError
from hookscope.gradcam.answer import Answer, LayerMaps, MapKey, averaged, fused, mirrored
from hookscope.gradcam.extent import extents
from hookscope.gradcam.noise import noised
from hookscope.gradcam.perturbing import Perturbation
from hookscope.gradcam.question import Question
from hookscope.gradcam.reading import asked
from hookscope.gradcam.steps import Steps
from hookscope.hooks.cut import Cut, Held
from hookscope.layout import Layout, channels_first, guess
from hookscope.maps import cam
from hookscope.maps.targets import Board, check_classes

_HALF_PRECISION_SCALE = 256.0
"""fp16 turns gradients under 6e-8 to zero; the score is scaled up by this before it goes back."""


def answer(model: nn.Module, x: Tensor, question: Question) -> Answer:
    """All maps that the question asks for; ``model`` in eval mode, gradients switched off."""
    steps = Steps(question.progress, max(1, question.smooth) * (2 if question.flip else 1))
    look = _Look.at(model, x, question, steps, differentiate=not question.smooth)
    classes = _classes(look.board, question, x)
    passes = []
    for variant in range(max(1, question.smooth)):
        picture, seen = x, look
        if question.smooth:
            picture = noised(x, question.seed, variant)
            seen = _Look.at(model, picture, question, steps)
        passes.append(seen.maps(classes))
        if question.flip:
            again = _Look.at(model, picture.flip(-1), question, steps)
            passes.append(mirrored(again.maps(classes)))
    layers = averaged(passes)
    columns = range(classes.shape[1])
    with torch.no_grad():
        best = classes[:, 0] if question.classes is None else look.board.ranked(1)[:, 0]
        return Answer(
            classes,
            torch.stack([look.board.scores(classes[:, k]).detach() for k in columns], dim=1),
            torch.stack([look.board.probabilities(classes[:, k]) for k in columns], dim=1),
            [look.board.notes(classes[:, k]) for k in columns],
            best,
            look.board.probabilities(best),
            extents(model, x),
            fused(layers) if question.fuse else layers,
        )


@dataclass(frozen=True)
class _Layer:
    """A held tensor that can become maps; ``index`` is its place among all that is held."""

    index: int
    held: Held
    layout: Layout


class _Look:
    """One forward pass of one batch, and the maps that follow from it."""

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        question: Question,
        steps: Steps,
        cut: Cut,
        board: Board,
    ) -> None:
        self._model = model
        self._x = x
        self._question = question
        self._steps = steps
        self._cut = cut
        self.board = board
        self._layers = _layers(cut.held, question, x)

    @classmethod
    def at(
        cls,
        model: nn.Module,
        x: Tensor,
        question: Question,
        steps: Steps,
        *,
        differentiate: bool = True,
    ) -> _Look:
        differentiate = differentiate and not cam.WITHOUT_GRADIENTS.issuperset(question.methods)
        cut = Cut(model, question.addresses, gradients=differentiate)
        return cls(model, x, question, steps, cut, _run(cut, x, question))

    def maps(self, classes: Tensor) -> list[LayerMaps]:
        """The maps of each layer, for each column of N x K classes and each method."""
        gradient_methods = [m for m in self._question.methods if m in cam.METHODS]
        maps: list[dict[MapKey, Tensor]] = [{} for _ in self._layers]
        notes: list[dict[MapKey, str]] = [{} for _ in self._layers]
        for column in range(classes.shape[1] if gradient_methods else 0):
            gradients = self._gradients(classes, column)
            for place, layer in enumerate(self._layers):
                activations = self._view(layer, layer.held.tensor.detach())
                gradient = gradients[layer.index]
                for method in gradient_methods:
                    key = (column, method)
                    if method in cam.WITHOUT_GRADIENTS:
                        first = maps[place].get((0, method))
                        if first is None:
                            first = cam.raw_map(method, activations, activations)
                        maps[place][key] = first
                    elif gradient is None:
                        maps[place][key] = cam.full_precision(activations).new_zeros(
                            (activations.shape[0], *activations.shape[2:])
                        )
                        notes[place][key] = "the class score does not depend on this layer"
                    else:
                        maps[place][key] = cam.raw_map(
                            method, activations, self._view(layer, gradient)
                        )
        self._perturb(classes, maps)
        return [
            LayerMaps(layer.held.address, layer.layout, maps[place], notes[place])
            for place, layer in enumerate(self._layers)
        ]

    def _gradients(self, classes: Tensor, column: int) -> list[Tensor | None]:
        """d(score)/d(tensor) for all that is held, in full precision."""
        scale = _HALF_PRECISION_SCALE if self._question.precision == "fp16" else 1.0
        last = column == classes.shape[1] - 1
        gradients = self._backward(classes[:, column], not last, scale)
        if column == 0 and self._cut.differentiates and any(g is None for g in gradients):
            # Perhaps the model switches gradients off somewhere on the way (a frozen backbone).
            self.board = _run(self._cut, self._x, self._question, whole_graph=True)
            self._layers = _layers(self._cut.held, self._question, self._x)
            gradients = self._backward(classes[:, column], not last, scale)
        return [None if g is None else cam.full_precision(g) / scale for g in gradients]

    def _backward(self, classes: Tensor, keep_graph: bool, scale: float) -> list[Tensor | None]:
        with torch.enable_grad():
            score = self.board.scores(classes).sum()
        return self._cut.gradients(score, keep_graph=keep_graph, scale=scale)

    def _view(self, layer: _Layer, tensor: Tensor) -> Tensor:
        return _view(tensor, layer.layout, self._x)

    def _perturb(self, classes: Tensor, maps: Sequence[dict[MapKey, Tensor]]) -> None:
        methods = [m for m in self._question.methods if m in cam.PERTURBING]
        if not methods:
            return
        channels = [self._view(layer, layer.held.tensor).shape[1] for layer in self._layers]
        self._steps.begin(len(self._x) * sum(channels) * len(methods))
        perturbation = Perturbation(
            self._model, self._x, self._question, self.board, classes, self._steps.advance
        )
        for place, layer in enumerate(self._layers):
            activations = self._view(layer, layer.held.tensor.detach())
            for method in methods:
                found = perturbation.maps(method, layer.held.address, layer.layout, activations)
                for column, value in enumerate(found):
                    maps[place][column, method] = value


def _run(cut: Cut, x: Tensor, question: Question, *, whole_graph: bool = False) -> Board:
    with torch.set_grad_enabled(cut.differentiates):
        return asked(lambda: cut.run(x.clone(), whole_graph=whole_graph), x, question)


def _classes(board: Board, question: Question, x: Tensor) -> Tensor:
    """The classes that are asked about, N x K."""
    asked = question.classes
    if asked is None:
        return board.ranked(question.top_k)
    table = torch.as_tensor(asked, dtype=torch.long)
    check_classes(table.flatten().tolist(), board.count)
    if not isinstance(asked, Tensor):
        table = table.expand(len(x), -1)
    elif table.dim() == 1:
        table = table.unsqueeze(1)
    if len(table) != len(x):
        raise UsageError(f"classes for {len(table)} pictures, but the batch has {len(x)}")
    # A copy, because a tensor that the caller made in inference mode cannot be part of a graph.
    return table.to(x.device, copy=True)


def _layers(held: Sequence[Held], question: Question, x: Tensor) -> list[_Layer]:
    """What is held and has maps: spatial, and with one row a picture."""
    layers = []
    for index, one in enumerate(held):
        layout = _layout(one, question, x)
        if layout.spatial and one.tensor.shape[layout.batch_axis] == len(x):
            layers.append(_Layer(index, one, layout))
    if not layers:
        asked = ", ".join(str(address) for address in question.addresses)
        shapes = ", ".join(f"{one.address} {tuple(one.tensor.shape)}" for one in held)
        raise ModelError(
            f"no map can be made at {asked}: "
            + (f"no spatial output there ({shapes})" if held else "it never runs"),
            "hookscope list-layers shows what each layer gives.",
        )
    return layers


def _layout(held: Held, question: Question, x: Tensor) -> Layout:
    known = question.layouts
    found = known.get(str(held.address)) or known.get(held.address.layer)
    return found or guess(held.tensor.shape, (x.shape[-2], x.shape[-1]))


def _view(tensor: Tensor, layout: Layout, x: Tensor) -> Tensor:
    if layout.batch_axis:
        tensor = tensor.movedim(layout.batch_axis, 0)
    return channels_first(tensor, layout, (x.shape[-2], x.shape[-1]))
