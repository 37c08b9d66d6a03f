"""``capture --pool``: embeddings instead of pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from hookscope.cli.options import OutputFlags
from hookscope.errors import UsageError

if TYPE_CHECKING:
    from hookscope.cli.running import Share
    from hookscope.layers.probe import Probe
    from hookscope.models.opening import OpenedModel
    from hookscope.models.preprocess import Preprocessing
    from hookscope.run.capturing.embedding import Embedding
    from hookscope.run.capturing.taps import Tap
    from hookscope.run.clock import Clock
    from hookscope.run.desk import Desk


@dataclass(frozen=True)
class PoolFlags:
    """Whether layers become vectors."""

    pool: Annotated[
        Literal["mean", "max", "cls", "flatten"] | None,
        Option(
            "--pool",
            help="No pictures: one matrix a layer with a row a picture, as --save says "
            "(default npy), and an index of the rows beside it.",
            rich_help_panel="Output",
        ),
    ] = None

    def check(self, what: str, **others: object) -> None:
        """Raises ``UsageError`` for flags (name -> value) that do not go together with it."""
        if self.pool is None:
            return
        if what not in ("output", "input"):
            raise UsageError(
                f"--pool takes what flows through layers, not their {what}",
                "Leave --what away, or take --what input.",
            )
        for name, value in others.items():
            if value:
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} has no meaning for the vectors that --pool makes")

    def embedding(
        self,
        opened: OpenedModel,
        feed: Preprocessing,
        tap: Tap,
        seen: Probe,
        desk: Desk,
        clock: Clock,
        share: Share,
        output: OutputFlags,
    ) -> Embedding:
        """The job that fills the matrices. Raises ``OutputError`` for one that must stay."""
        from hookscope.output.matrix import Replacing
        from hookscope.run.capturing.embedding import Embedding
        from hookscope.run.capturing.taps import ActivationTap

        assert self.pool is not None
        assert isinstance(tap, ActivationTap)
        return Embedding(
            opened,
            feed,
            tap,
            seen,
            self.pool,
            output.save or "npy",
            desk,
            clock,
            images=[source.typed for source in share.everyone],
            policy=Replacing(
                continues=output.skip_existing or share.restarted,
                keeps=output.no_clobber,
                forces=output.force,
            ),
            shard=share.shard,
        ).open()
