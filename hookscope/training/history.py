"""The norms of gradients over a training run, and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# An L2 norm may fall by this from the last layer to the first, or rise by that, in a network that
# trains well: at their random initialisation torchvision's networks fall by at most 5 times (VGG,
# ViT), and the deeper ones with batch norm rise by up to 220 (ResNet-50).
VANISHING = 100.0
EXPLODING = 1000.0


@dataclass(frozen=True)
class Verdict:
    """What a history says: ``kind``, one sentence, and the first layer's norm over the last's."""

    kind: Literal["healthy", "vanishing", "exploding", "not finite", "no data"]
    message: str
    ratio: float | None = None

    def __bool__(self) -> bool:
        return self.kind == "healthy"


@dataclass(frozen=True)
class GradientHistory:
    """Gradient norms, a row a recorded step and a column a layer, in the order of execution.

    ``steps``: the numbers of the recorded backward passes, from 0. ``parameters``: the 2-norm of
    the gradient of all of a layer's parameters together. ``outputs``: that of the loss at what the
    layer returned, all calls and tensors together. NaN where there was none.
    """

    layers: tuple[str, ...]
    steps: NDArray[np.int64]
    parameters: NDArray[np.float32]
    outputs: NDArray[np.float32]

    @property
    def flow(self) -> NDArray[np.float32]:
        """The norms that tell how gradients flow: those at outputs, where any were recorded."""
        return self.parameters if np.isnan(self.outputs).all() else self.outputs

    def verdict(self) -> Verdict:
        """Whether gradients reach the first layer: the median over the recorded steps is judged.

        Vanishing: the norm falls by more than 100 times from the last layer to the first;
        exploding: it rises by more than 1000 times.
        """
        # A NaN stands for no gradient; that a gradient itself was NaN is kept as infinity.
        infinite = np.argwhere(np.isinf(self.flow) | np.isinf(self.parameters))
        if len(infinite):
            row, column = infinite[0]
            message = f"a gradient at {self.layers[column]} is not finite in step {self.steps[row]}"
            return Verdict("not finite", message)
        seen = [
            column for column in range(len(self.layers)) if not np.isnan(self.flow[:, column]).all()
        ]
        if len(seen) < 2:
            return Verdict("no data", "gradients of fewer than two layers were recorded")
        norms = np.nanmedian(self.flow[:, seen], axis=0)
        first, last = (
            (self.layers[seen[0]], float(norms[0])),
            (self.layers[seen[-1]], float(norms[-1])),
        )
        if first[1] == last[1] == 0:
            return Verdict("vanishing", "all gradients are zero", None)
        ratio = first[1] / last[1] if last[1] else float("inf")
        between = f"from {last[0]} ({last[1]:.3g}) to {first[0]} ({first[1]:.3g})"
        if ratio * VANISHING < 1:
            return Verdict("vanishing", f"the gradient vanishes {between}", ratio)
        if ratio > EXPLODING:
            return Verdict("exploding", f"the gradient explodes {between}", ratio)
        return Verdict("healthy", f"the gradient goes {between}", ratio)

    def plot(self) -> Figure:
        """The norm over the layers: the first and last recorded step, and the span of all."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(max(6.0, 0.22 * len(self.layers)), 4.5), layout="constrained")
        axes = figure.subplots()
        places = np.arange(len(self.layers))
        flow = np.where(np.isfinite(self.flow) & (self.flow > 0), self.flow, np.nan)
        if len(flow):
            low, high = (
                np.array([f(column[~np.isnan(column)], initial=start) for column in flow.T])
                for f, start in ((np.min, np.inf), (np.max, 0.0))
            )
            some = high > 0
            axes.fill_between(
                places[some], low[some], high[some], alpha=0.2, linewidth=0, label="all steps"
            )
            axes.plot(places, flow[0], marker=".", label=f"step {self.steps[0]}")
            if len(flow) > 1:
                axes.plot(places, flow[-1], marker=".", label=f"step {self.steps[-1]}")
            axes.set_yscale("log")
            axes.legend()
        axes.set_xticks(places, self.layers, rotation=90, fontsize=7)
        axes.set_ylabel("2-norm of the gradient")
        axes.set_title(self.verdict().message, fontsize=9)
        return figure
