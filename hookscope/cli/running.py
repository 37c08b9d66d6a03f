"""What capture and gradcam have in common: pictures in, records out, and an exit code."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hookscope.cli.console import Console, one_line
from hookscope.cli.options import OutputFlags, RunFlags
from hookscope.cli.signals import Signals
from hookscope.cli.status import ExitCode
from hookscope.errors import HookscopeError, OutputError, UsageError
from hookscope.images.inputs import Inputs, Source, expand
from hookscope.output.manifest import made_by_us
from hookscope.output.names import Sample, settle
from hookscope.output.records import Record, dumps, shows_nothing
from hookscope.output.store import FolderLostError
from hookscope.run.shard import Shard, choose, launch, refuse_shared_stdin

if TYPE_CHECKING:
    from hookscope.cli.showing import Screen
    from hookscope.output.store import Store
    from hookscope.run.pipeline import Engine

_MOST_LISTED = 20


@dataclass(frozen=True)
class Share:
    """The pictures of this process, named over the whole run, and which share of it they are.

    ``everyone``: the inputs of all shares; ``leads``: this process speaks for all ranks;
    ``restarted``: torchrun has begun it anew.
    """

    samples: list[Sample]
    everyone: Sequence[Source]
    shard: Shard | None = None
    leads: bool = True
    restarted: bool = False


def share_of(console: Console, inputs: list[str], output: OutputFlags, run: RunFlags) -> Share:
    """The pictures that the arguments stand for; says what was passed over in folders."""
    launched = launch(os.environ)
    refuse_shared_stdin(inputs, run.null, launched)
    found = expand(
        inputs,
        recursive=run.recursive,
        nul=run.null,
        exclude=output.out,
        made=made_by_us(output.out),
    )
    if not found.pictures:
        raise UsageError("no pictures were given", "Name files, folders or quoted globs.")
    leads = launched is None or launched.leads
    if leads:
        _tell_skipped(console, found)
    shard = choose(run.shard, launched)
    samples = settle(found.pictures)
    return Share(
        samples=list(shard.share(samples)) if shard else samples,
        everyone=found.pictures,
        shard=shard,
        leads=leads,
        restarted=launched is not None and launched.restarts > 0,
    )


@dataclass
class Tally:
    """What became of a run."""

    pictures: int = 0
    failures: list[str] = field(default_factory=list)
    fired: set[tuple[str, int]] = field(default_factory=set)
    statuses: dict[str, int] = field(default_factory=dict)

    def count(self, record: Record, *, strict: bool) -> None:
        status = record["status"]
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == "error":
            where = one_line(record["image"] or record["layer"] or record["command"])
            self.failures.append(f"{where}: {record['error']}")
            return
        if strict and shows_nothing(record):
            where = one_line(f"{record['image']}: {record['layer']}")
            self.failures.append(f"{where}: {record['reason']}")
        if record["layer"] and record["call"]:
            self.fired.add((record["layer"].partition("[")[0], record["call"]))


class Gathering(Protocol):
    """Results that become files of the whole run, rather than files of each picture."""

    def taken(self, results: Iterator[Any]) -> Iterator[list[Record]]:
        """The records of each picture, whose results come in order."""

    def publish(self) -> list[str]:
        """Writes the files of the complete run; their paths."""

    def close(self) -> None:
        """Lets go of what is open, after a run that was not completed too."""


@dataclass(frozen=True)
class Runner:
    """Runs the engine over the pictures and prints each record as it comes.

    ``describe`` gives the line on stderr for a record; ``afterwards`` the records that only the
    whole run can give, such as those of layers that never ran; ``summary`` the lines on stderr at
    its end. ``gathering``: where the pictures have no files of their own.
    """

    console: Console
    engine: Engine
    store: Store
    output: OutputFlags
    run: RunFlags
    describe: Callable[[Record], str | None]
    afterwards: Callable[[Tally], list[Record]]
    gathering: Gathering | None = None
    summary: Callable[[], Iterable[str]] = tuple

    def over(self, share: Share, signals: Signals) -> int:
        """The exit code of the whole run."""
        gc.freeze()  # what the start has left stays to the end
        gc.enable()
        tally, total = Tally(), len(share.samples)
        signals.stopping = self.engine.stopping
        try:
            fatal = self._through(share, tally)
        finally:
            if self.gathering is not None:
                self.gathering.close()
        if fatal is None:
            self._report(tally)
        self._sum_up(tally)
        if fatal is not None:
            self.console.error(fatal)
        if signals.caught is not None:
            self.console.note(
                f"stopped: {tally.pictures} of {total} pictures are done; "
                "--skip-existing goes on from here"
            )
            return 128 + signals.caught
        if fatal is not None:
            self.console.note(f"{tally.pictures} of {total} pictures are done")
        return ExitCode.FAILED if tally.failures or fatal else ExitCode.OK

    def _through(self, share: Share, tally: Tally) -> HookscopeError | None:
        """All pictures; returns what ended the run in the middle, and raises what kept it from
        doing anything."""
        total = len(share.samples)
        stopping = self.engine.stopping
        screen = self._screen(share)
        try:
            with (
                closing(self.engine.run(share.samples)) as results,
                self.console.progress(total if share.leads else 0, "pictures") as advance,
            ):
                for records in self.gathering.taken(results) if self.gathering else results:
                    self._take(records, tally, screen)
                    tally.pictures += 1
                    advance()
                    if self.run.fail_fast and tally.failures:
                        stopping.set()
            if total and not stopping.is_set():
                self._take(self.afterwards(tally), tally, None)
                for path in self.gathering.publish() if self.gathering else ():
                    self._tell_path(path)
        except HookscopeError as error:
            if not tally.pictures and not isinstance(error, FolderLostError):
                raise
            return error
        return None

    def _screen(self, share: Share) -> Screen | None:
        """Where results are shown, if that was asked for and there will be pictures."""
        if not self.output.show or self.store.dry_run or self.gathering or not share.leads:
            return None
        from hookscope.cli.showing import Screen

        return Screen.of(self.console)

    def _take(self, records: list[Record], tally: Tally, screen: Screen | None) -> None:
        printed: set[str] = set()  # a sheet belongs to the records of all its classes
        for record in records:
            tally.count(record, strict=self.run.strict)
            if record["status"] == "error":
                self.store.append(record)
            if self.output.json:
                self.console.data(dumps(record))
            elif record["status"] != "skipped" and self.gathering is None:
                for path in record["files"].values():
                    if path not in printed:
                        printed.add(path)
                        self.console.data(path)
            if screen is not None and record["status"] != "skipped":
                screen.show(record["files"])
            said = self.describe(record)
            if said:
                self.console.note(said)

    def _tell_path(self, path: str) -> None:
        """A file of the whole run, of which the records have told before."""
        if not self.output.json:
            self.console.data(path)

    def _report(self, tally: Tally) -> None:
        """The page of all that the folder holds by now; one that cannot be written is a failure."""
        if not self.output.report or self.store.dry_run:
            return
        from hookscope.run.reporting import write_report

        try:
            path = write_report(self.output.out, force=self.output.force)
        except OutputError as error:
            self.console.error(error)  # a run that was stopped has no list of failures
            tally.failures.append("--report: the page")
            return
        if self.output.json:
            self.console.note(f"report: {path}")
        else:
            self.console.data(str(path))

    def _sum_up(self, tally: Tally) -> None:
        for stage, seconds in self.engine.job.clock.seconds.items():
            self.console.detail(f"{stage}: {seconds:.2f} s")
        for sentence in self.summary():
            self.console.note(sentence)
        if tally.statuses.get("skipped"):
            self.console.note(f"there already, skipped: {tally.statuses['skipped']}")
        if not tally.failures:
            return
        self.console.error(f"{len(tally.failures)} failed:")
        for failure in tally.failures[:_MOST_LISTED]:
            self.console.error_line(failure)
        if len(tally.failures) > _MOST_LISTED:
            self.console.error_line(f"and {len(tally.failures) - _MOST_LISTED} more")


def _tell_skipped(console: Console, found: Inputs) -> None:
    for count, what in (
        (found.skipped, "passed over in folders, hidden or no pictures"),
        (found.unsearched, "sub-folders not searched (--recursive does)"),
        (found.repeated, "named twice, done once"),
    ):
        if count:
            console.note(f"note: {what}: {count}")
