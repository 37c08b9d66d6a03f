"""A list of handles lets go of all of them, once, whatever happened."""

from __future__ import annotations

import pytest
from torch import nn

from hookscope.hooks.handles import Handles


class Noted:
    def __init__(self, name: str, removed: list[str]) -> None:
        self.name = name
        self.removed = removed

    def remove(self) -> None:
        self.removed.append(self.name)


def test_the_last_goes_first_and_none_goes_twice() -> None:
    removed: list[str] = []
    handles = Handles()
    first = handles.add(Noted("first", removed))
    handles.add(Noted("second", removed))
    assert first.name == "first"
    assert len(handles) == 2
    handles.remove()
    handles.remove()
    assert removed == ["second", "first"]
    assert len(handles) == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_leaving_by_an_exception_removes_and_hides_nothing(error: type[BaseException]) -> None:
    model = nn.Linear(2, 2)
    handles = Handles()
    handles.add(model.register_forward_hook(lambda module, args, output: None))
    with pytest.raises(error), handles:
        raise error("inside")
    assert not model._forward_hooks
