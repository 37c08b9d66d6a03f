"""One list for every hook that hookscope places, so that letting go is one call."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, TypeVar


class Removable(Protocol):
    """What is in place until ``remove`` is called: torch's ``RemovableHandle``, or ours."""

    def remove(self) -> None: ...


R = TypeVar("R", bound=Removable)


class Handles:
    """The hooks that one object has placed.

    ``add`` each handle as it is made; ``remove`` takes all of them off, as often as it is called,
    the last one first. As a context it removes on leaving, whatever happened inside, and hides no
    exception.
    """

    def __init__(self) -> None:
        self._handles: list[Removable] = []

    def add(self, handle: R) -> R:
        self._handles.append(handle)
        return handle

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def __len__(self) -> int:
        return len(self._handles)

    def __enter__(self) -> Handles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()
