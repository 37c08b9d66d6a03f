"""What can stand at the end of an unfinished command line.

typer could tell, but checks every value of the line on the way, which imports pydantic: as long
as all that a completion may take. Here the words are only sorted by the flags they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from typer import Typer
from typer.main import get_command


class Answer(NamedTuple):
    """One way to complete a word, and what it means."""

    value: str
    meaning: str = ""


def answers(app: Typer, before: list[str], word: str) -> list[Answer]:
    """The ways to complete ``word``, which follows the words ``before`` it (without the program).

    Of ``--flag=value`` only the value is completed. May raise: some of the line's words may name
    a user's own code.
    """
    command: Any = get_command(app)
    context = command.context_class(command, info_name="hookscope", resilient_parsing=True)
    names = [at for at, name in enumerate(before) if not name.startswith("-")]
    if names:
        name, before = before[names[0]], before[names[0] + 1 :]
        command = command.get_command(context, name)
        if command is None:
            return []
        context = command.context_class(
            command, info_name=name, parent=context, resilient_parsing=True
        )
    flag = flag_of(word)
    if flag:
        before, word = [*before, flag[:-1]], word[len(flag) :]
    asking = _asking(command, context, before)
    given = _values(command, context, before[:-1] if asking else before)
    if asking is None and word.startswith("-") and "--" not in before:
        return list(_flags(command, context, given, word))
    if asking is None and not names:
        return [
            Answer(name, command.commands[name].get_short_help_str(100))
            for name in command.list_commands(context)
            if name.startswith(word)
        ]
    asking = asking or _next_argument(command, given)
    if asking is None:
        return []
    return [Answer(item.value, item.help or "") for item in asking.shell_complete(context, word)]


def flag_of(word: str) -> str:
    """``--flag=`` of a word that is that with a value behind it."""
    name, sign, _ = word.partition("=")
    return name + sign if sign and name.startswith("-") else ""


def _asking(command: Any, context: Any, before: list[str]) -> Any:
    """The flag at the end of the line that still lacks its value."""
    if not before or "--" in before:
        return None
    for parameter in command.get_params(context):
        if before[-1] in parameter.opts and _takes_value(parameter):
            return parameter
    return None


def _takes_value(parameter: Any) -> bool:
    return not (getattr(parameter, "is_flag", False) or getattr(parameter, "count", False))


def _values(command: Any, context: Any, words: list[str]) -> dict[str, Any]:
    """What the line gives, as text; the context gets that, the environment's and the defaults."""
    parsed, _, _ = command.make_parser(context).parse_args(list(words))
    given = {name: value for name, value in parsed.items() if _is_value(value)}
    for parameter in command.get_params(context):
        value = given.get(parameter.name) or parameter.resolve_envvar_value(context)
        default = parameter.default if _is_value(parameter.default) else None
        context.params[parameter.name] = value or default
    return given


def _is_value(value: Any) -> bool:
    """Not so with ``None`` and with the object by which some versions of Click mean the same."""
    return bool(value) and isinstance(value, (str, int, float, list, tuple))


def _flags(command: Any, context: Any, given: dict[str, Any], word: str) -> Iterator[Answer]:
    """Flags that begin so, without those that are there and cannot be repeated."""
    for parameter in command.get_params(context):
        if parameter.param_type_name != "option" or getattr(parameter, "hidden", False):
            continue
        if parameter.name in given and not parameter.multiple:
            continue
        meaning = (parameter.help or "").replace("\\[", "[")
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith(word):
                yield Answer(name, meaning)


def _next_argument(command: Any, given: dict[str, Any]) -> Any:
    """The argument that the next word will be."""
    for parameter in command.params:
        if parameter.param_type_name == "argument" and (
            parameter.nargs == -1 or parameter.name not in given
        ):
            return parameter
    return None
