"""The variant of a model that a checkpoint was written for: how many classes, which heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from hookscope.layers.modules import unwrap
from hookscope.models.checkpoint.candidates import Scope
from hookscope.models.checkpoint.choice import Choice, choose
from hookscope.models.checkpoint.fit import Fit, Wanted, fit, wanted_by
from hookscope.models.checkpoint.leaves import Leaf
from hookscope.models.source import ModelSource
from hookscope.models.structure import without_initialisation

_MOST_GUESSES = 4


@dataclass(frozen=True)
class Variant:
    """How a source is asked to build; None leaves it to the source."""

    num_classes: int | None = None
    aux_heads: bool | None = None

    def build(self, source: ModelSource) -> nn.Module:
        return source.build(num_classes=self.num_classes, aux_heads=self.aux_heads)


@dataclass(frozen=True)
class Match:
    """A built variant and what the checkpoint holds for it; its parameters are not set yet."""

    variant: Variant
    module: nn.Module
    wanted: Wanted
    choice: Choice
    fit: Fit

    @property
    def badness(self) -> tuple[int, int]:
        return self.fit.lacks, len(self.fit.unexpected)


def best_match(
    source: ModelSource,
    leaves: tuple[Leaf, ...],
    scope: Scope,
    num_classes: int | None,
    file: str,
) -> Match | None:
    """The variant of the source's model that fits best, or None where no name fits any.

    Shapes decide: a head of ten rows where the model's has a thousand means ten classes, and
    so does whatever else is as long as that. Raises ``CheckpointError`` (ambiguous).
    """

    def match(variant: Variant) -> Match | None:
        with without_initialisation():
            module = variant.build(source)
        wanted = wanted_by(unwrap(module))
        choice = choose(leaves, wanted.shapes, wanted.learned, scope, file)
        if choice is None:
            return None
        return Match(variant, module, wanted, choice, fit(choice.candidate, leaves, wanted))

    best = match(Variant(num_classes))
    if best is None or best.fit.perfect:
        return best
    if num_classes is None and source.takes("num_classes"):
        best = _better(best, (match(Variant(n)) for n in _classes(best.fit, source.classes)))
    if not best.fit.perfect and source.takes("aux_heads"):
        heads = (Variant(best.variant.num_classes, aux) for aux in (True, False))
        best = _better(best, (match(variant) for variant in heads))
    return best


def _better(best: Match, others: Iterator[Match | None]) -> Match:
    for other in others:
        if other is not None and other.badness < best.badness:
            best = other
        if best.fit.perfect:
            break
    return best


def _classes(found: Fit, default: int | None) -> list[int]:
    """The numbers of classes that the tensors of another length speak for, the likeliest first.

    A detector's box head is four times as long as it has classes, an SSD's some other multiple.
    """
    guesses: list[int] = []
    for in_file, in_model in found.mismatched.values():
        if len(in_file) == 0 or in_file[1:] != in_model[1:]:
            return []  # another network, not another head
        guesses.append(in_file[0])
        if default and in_model[0] % default == 0 and in_file[0] % (in_model[0] // default) == 0:
            guesses.append(in_file[0] // (in_model[0] // default))
    common = sorted(set(guesses), key=lambda n: (-guesses.count(n), n))
    return [n for n in common if n > 0][:_MOST_GUESSES]
