"""Which share of the inputs this process takes: ``--shard I/N``, a torchrun rank, or both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from hookscope.errors import UsageError

Anything = TypeVar("Anything")


class Shard(NamedTuple):
    """Share ``number`` of ``total``, counted from 1."""

    number: int
    total: int

    def share(self, items: Sequence[Anything]) -> Sequence[Anything]:
        """This share of ``items``: neighbours stay together, in order, so that the shares put
        one behind the other are the whole again. Sizes differ by one at most."""
        start = len(items) * (self.number - 1) // self.total
        end = len(items) * self.number // self.total
        return items[start:end]


@dataclass(frozen=True)
class Launch:
    """What torchrun tells each process that it starts.

    ``rank`` of ``world`` over all machines and ``local_rank`` on this one, counted from 0;
    ``restarts``: how often the processes were started anew.
    """

    rank: int = 0
    world: int = 1
    local_rank: int | None = None
    restarts: int = 0

    @property
    def leads(self) -> bool:
        """Whether this process speaks for all of them: it draws the progress bar."""
        return self.rank == 0


def launch(environ: Mapping[str, str]) -> Launch | None:
    """How torchrun, or what sets the same variables, started this process; ``None`` if it did not.

    Raises ``UsageError`` where the variables contradict each other.
    """
    if not environ.get("RANK") or not environ.get("WORLD_SIZE"):
        return None
    try:
        rank, world = int(environ["RANK"]), int(environ["WORLD_SIZE"])
        local = environ.get("LOCAL_RANK")
        restarts = int(environ.get("TORCHELASTIC_RESTART_COUNT") or 0)
        found = Launch(rank, world, int(local) if local else None, restarts)
    except ValueError:
        found = Launch(0, 0)
    if not 0 <= found.rank < found.world:
        raise UsageError(
            f"RANK={environ['RANK']} of WORLD_SIZE={environ['WORLD_SIZE']} is no torchrun rank",
            "Unset both to run one process, or start it with torchrun.",
        )
    return found


def choose(text: str | None, launched: Launch | None) -> Shard | None:
    """The share of ``--shard text`` and of the rank; ``None`` for a process that does it all.

    Under both, a job of an array divides its share among its ranks. Raises ``UsageError``.
    """
    given = parse(text) if text is not None else None
    if launched is None:
        return given
    outer = given or Shard(1, 1)
    before = (outer.number - 1) * launched.world + launched.rank
    return Shard(before + 1, outer.total * launched.world)


def parse(text: str) -> Shard:
    """``"3/8"`` -> the third of eight shares; ``UsageError`` for anything else."""
    form = re.fullmatch(r"\s*([0-9]+)\s*/\s*([0-9]+)\s*", text)
    if form is None:
        raise UsageError(f"--shard {text!r} is not I/N", "For example: --shard 3/8")
    number, total = int(form[1]), int(form[2])
    if not 1 <= number <= total:
        hint = f"I counts from 1: the shares are 1/{total} to {total}/{total}." if total else ""
        raise UsageError(f"--shard {text}: there is no such share", hint)
    return Shard(number, total)


def refuse_shared_stdin(arguments: Iterable[str], nul: bool, launched: Launch | None) -> None:
    """Ranks on one machine would each tear some lines out of the same list on stdin."""
    if launched is not None and launched.world > 1 and (nul or "-" in arguments):
        raise UsageError(
            "a list on stdin cannot be shared by several ranks",
            "Give each its own process with --shard I/N, or name the folder.",
        )
