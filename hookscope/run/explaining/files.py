"""The files of heatmaps: which there are, and how they are named."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hookscope.models.labels import Labels
from hookscope.output.names import Sample, beside
from hookscope.run.desk import Desk
from hookscope.run.explaining.pictures import Look


@dataclass(frozen=True)
class HeatFiles:
    """Kind -> name below ``--out``.

    ``methods``: all of the run; several come together on one sheet. ``save``: the format of the
    raw tensors. ``versus``: the name of the second checkpoint, of which there is a map to each.
    """

    desk: Desk
    labels: Labels
    look: Look
    methods: tuple[str, ...]
    save: str | None = None
    versus: str | None = None

    @property
    def compares(self) -> bool:
        """Whether a sheet shows the methods side by side."""
        return len(self.methods) > 1

    @property
    def one_each(self) -> bool:
        """Whether each map has a file of its own, and not only its place on the sheet."""
        views = {"overlay", "heatmap"} & set(self.look.views)
        return self.save is not None or self.versus is not None or bool(views)

    def own(
        self, layer: str, sample: Sample, method: str, index: int | None, *, rivalled: bool = True
    ) -> dict[str, str]:
        """Those of one map; ``rivalled``: the second checkpoint has one too, where there is one."""
        class_name = None if index is None else self.labels.name(index)
        target = "none" if index is None else f"{index}-{class_name}" if class_name else str(index)
        named = partial(self.desk.file_name, layer, sample, method, target)
        overlay = named(extension=self.look.format)
        names = {"overlay": overlay, "heatmap": named("heatmap", extension="png")}
        files = {view: names[view] for view in self.look.views if view in names}
        if self.save:
            files["tensor"] = beside(overlay, self.save)
        if self.versus and rivalled:
            files["versus"] = named(f"versus-{self.versus}", extension="png")
            if self.save:
                files["versus_tensor"] = beside(files["versus"], self.save)
        return files

    def together(self, layer: str, sample: Sample, method: str) -> dict[str, str]:
        """Those that show all classes, and with several methods all of these."""
        methods = self.methods if self.compares else (method,)
        named = partial(self.desk.file_name, layer, sample, *methods, "sheet")
        files = {"sheet": named(extension="png")} if "sheet" in self.look.views else {}
        if self.look.figure:
            files["figure"] = named(extension=self.look.figure)
        return files
