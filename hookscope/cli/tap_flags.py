"""Flags of ``capture`` that say what is taken at the layers, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from hookscope.cli.completion.values import class_names
from hookscope.errors import UsageError

if TYPE_CHECKING:
    from hookscope.layers.addresses import Selection
    from hookscope.layers.probe import Probe
    from hookscope.models.opening import OpenedModel
    from hookscope.run.capturing.taps import Tap
    from hookscope.run.capturing.tensorboard import EventLog


def _question(*names: str, help: str, **more: Any) -> Any:
    return Option(*names, help=help, rich_help_panel="Question", **more)


@dataclass(frozen=True)
class TapFlags:
    """What is taken at the layers."""

    what: Annotated[
        Literal["output", "input", "gradient", "attention"],
        _question(
            "--what",
            help="What layers return, what they are given, the gradient of a class score at what "
            "they return, or the weights of each attention head.",
        ),
    ] = "output"
    class_: Annotated[
        list[str] | None,
        _question(
            "--class",
            help="Of gradients: index, name, or a unique part of a name. Default: the predicted "
            "one.",
            metavar="CLASS",
            autocompletion=class_names,
        ),
    ] = None
    loss: Annotated[
        Literal["cross-entropy"] | None,
        _question(
            "--loss", help="Gradients of this loss, the class being the truth, not of its score."
        ),
    ] = None
    output_key: Annotated[
        str | None,
        _question("--output-key", help="Which part of the output holds the scores.", metavar="KEY"),
    ] = None
    rollout: Annotated[
        bool,
        _question(
            "--rollout", help="Attention multiplied through all the layers, over the picture."
        ),
    ] = False
    stats: Annotated[
        bool,
        Option(
            "--stats",
            help="No pictures: a table of statistics over all inputs, with what is suspicious.",
            rich_help_panel="Output",
        ),
    ] = False
    tensorboard: Annotated[
        Path | None,
        Option(
            "--tensorboard",
            help="Grids and histograms for TensorBoard too.",
            metavar="DIR",
            rich_help_panel="Output",
        ),
    ] = None

    def check(self, **drawing: object) -> None:
        """Raises ``UsageError`` for flags that do not go together.

        ``drawing``: flags (name -> value) that have no meaning where nothing is drawn or saved.
        """
        for name, value in (
            ("--class", self.class_),
            ("--loss", self.loss),
            ("--output-key", self.output_key),
        ):
            if value and self.what != "gradient":
                raise UsageError(f"{name} asks for gradients", "Add --what gradient.")
        if self.rollout and self.what != "attention":
            raise UsageError("--rollout asks for attention", "Add --what attention.")
        if self.class_ and len(self.class_) > 1:
            raise UsageError(
                "capture takes the gradient of one class at a time", "Run it once for each --class."
            )
        for flag, given in {**drawing, "tensorboard": self.tensorboard}.items():
            if self.stats and given:
                raise UsageError(f"--stats prints a table, without files: no --{flag} there")

    def event_log(self, *, dry_run: bool) -> EventLog | None:
        """Where TensorBoard looks, if it was asked for."""
        if self.tensorboard is None or dry_run:
            return None
        from hookscope.run.capturing.tensorboard import EventLog

        return EventLog(self.tensorboard)

    def tap(
        self,
        opened: OpenedModel,
        selections: Sequence[Selection],
        seen: Probe,
        precision: str,
    ) -> Tap:
        """What these flags ask for at the selected layers."""
        if self.what == "attention":
            from hookscope.run.capturing.attention import AttentionTap

            return AttentionTap.on(
                opened.module, selections, seen, rolled_out=self.rollout, precision=precision
            )
        if self.what == "gradient":
            from hookscope.run.capturing.gradients import GradientTap, Target

            index = None
            if self.class_:
                count = len(opened.labels) or 1 << 30  # the network refuses what it has not
                index = opened.labels.find(self.class_[0], count)
            target = Target(index, self.loss, self.output_key)
            return GradientTap(selections, seen, target, opened.labels, precision)
        from hookscope.run.capturing.taps import ActivationTap

        return ActivationTap(self.what, selections, seen, precision)
