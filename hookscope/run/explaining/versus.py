"""Two checkpoints, one question: what the second sees where the first looked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from hookscope.errors import ModelError
from hookscope.gradcam import Heatmap
from hookscope.gradcam.again import by_key, classes_of, key_of
from hookscope.hooks.dressing import Dress, dressed, state
from hookscope.maps.faithfulness import rank_correlation
from hookscope.models.labels import Labels
from hookscope.models.opening import OpenedModel

Explainer = Callable[[nn.Module, Tensor, Tensor], list[list[Heatmap]]]


@dataclass(frozen=True)
class Rival:
    """The tensors of a second checkpoint, for networks built like the first.

    ``name`` and ``first``: what captions call this checkpoint and the first one; ``account``: what
    was done to load it.
    """

    name: str
    first: str
    digest: str
    account: dict[str, Any]
    dress: Dress

    @classmethod
    def of(cls, first: OpenedModel, second: OpenedModel, names: tuple[str, str]) -> Rival:
        """``names``: of the first and of the second.

        Raises ``ModelError`` where the two are not networks of one kind.
        """
        ours, theirs = state(first.module), state(second.module)
        for key in {**ours, **theirs}:
            one, other = (_shape(tensors.get(key)) for tensors in (ours, theirs))
            if one != other:
                raise ModelError(
                    f"{names[1]} is not a checkpoint of the same network: {key} is {other} in it, "
                    f"and {one} in the first",
                    "--versus compares two states of one network, with the same classes.",
                )
        account = second.account.record() if second.account else {}
        return cls(names[1], names[0], second.digest, account, theirs)

    def heatmaps(
        self,
        explainer: Explainer,
        network: nn.Module,
        x: Tensor,
        found: Sequence[Sequence[Heatmap]],
    ) -> list[list[Heatmap | None]]:
        """The second checkpoint's answers to what the heatmaps ``found`` are about.

        None where there is none: what runs may depend on the weights.
        """
        with dressed(network, self.dress):
            try:
                again = [by_key(row) for row in explainer(network, x, classes_of(found))]
            except ModelError:  # with its weights the layer does not run
                again = [{} for _ in found]
        return [
            [theirs.get(key_of(one)) for one in row]
            for row, theirs in zip(found, again, strict=True)
        ]

    def field(self, ours: Heatmap, theirs: Heatmap, labels: Labels) -> dict[str, Any]:
        """The ``versus`` of a record; score and probability are those of the record's class."""
        return {
            "name": self.name,
            "checkpoint": self.account,
            "score": theirs.score,
            "probability": theirs.probability,
            **prediction(theirs, labels),
            "rank_correlation": rank_correlation(ours.map, theirs.map),
        }


def prediction(heatmap: Heatmap, labels: Labels) -> dict[str, Any]:
    """What the network itself says of the picture."""
    index, probability = heatmap.predicted or (None, None)
    return {
        "predicted_index": index,
        "predicted_name": None if index is None else labels.name(index),
        "predicted_probability": probability,
    }


def _shape(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else "x".join(map(str, tensor.shape)) or "a number"
