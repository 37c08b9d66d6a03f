"""One colour scale for all maps of a run, found by a pass before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from hookscope.errors import PictureError
from hookscope.output.names import Sample
from hookscope.run.clock import Clock
from hookscope.run.explaining.asking import Finding
from hookscope.run.explaining.job import Explaining
from hookscope.run.explaining.sheets import unreadable
from hookscope.run.pipeline import Engine, Job, Records
from hookscope.run.preparing import Prepared, prepare


def on_one_scale(
    job: Explaining, engine_of: Callable[[Job], Engine], samples: Iterable[Sample]
) -> Explaining:
    """The same job, its colours ranging from the lowest to the highest value of all its maps."""
    extremes = Extremes(replace(job, asking=job.asking.unevaluated()))
    for _ in engine_of(extremes).run(samples):
        pass
    return replace(job, look=replace(job.look, limits=extremes.limits))


@dataclass
class Extremes:
    """A job that writes nothing: the lowest and the highest value of all maps of a run."""

    explaining: Explaining
    low: float = math.inf
    high: float = -math.inf

    @property
    def clock(self) -> Clock:
        return self.explaining.clock

    @property
    def limits(self) -> tuple[float, float] | None:
        return (self.low, self.high) if self.low < self.high else None

    def prepare(self, sample: Sample) -> Prepared | Records:
        return prepare(sample, self.explaining.preprocessing, self.clock, lambda *_: None)

    def compute(self, network: nn.Module, batch: Sequence[Prepared]) -> list[list[Finding]]:
        return self.explaining.compute(network, batch)

    def finish(self, prepared: Prepared, found: list[Finding]) -> Records:
        for finding in found:
            for heatmap in filter(None, (finding.heatmap, finding.rival)):
                if unreadable(heatmap) is None:
                    self.low = min(self.low, float(heatmap.map.min()))
                    self.high = max(self.high, float(heatmap.map.max()))
        return []

    def failed(self, sample: Sample, error: PictureError) -> Records:
        return []
