"""Groups of flags as parameters: each becomes its flags for typer, and one value for a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from typing import Any, get_type_hints


def spread(command: Callable[..., int]) -> Callable[..., int]:
    """``command`` with each parameter that is a group of flags replaced by the group's flags."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if not is_dataclass(hint):
            parameters.append(parameter.replace(annotation=hint, kind=parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = hint
        parameters += _flags_of(hint)  # type: ignore[arg-type]

    @wraps(command)
    def gathered(**flags: Any) -> int:
        values = {
            name: group(**{field.name: flags.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        return command(**flags, **values)

    del gathered.__wrapped__
    gathered.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    gathered.__annotations__ = {p.name: p.annotation for p in parameters}
    return gathered


@cache
def _flags_of(group: type) -> list[inspect.Parameter]:
    """The flags of one group, which several commands take."""
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]
