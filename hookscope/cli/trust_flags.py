"""The flags of ``gradcam`` that ask whether to believe the answer."""

# No postponed annotations here either; see options.py.
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from hookscope.cli.completion.values import method_names


def _trust(*names: str, help: str, **more: Any) -> Any:
    return Option(*names, help=help, rich_help_panel="Trust", **more)


@dataclass(frozen=True)
class TrustFlags:
    """What the answer is compared with."""

    evaluate: Annotated[
        bool,
        _trust(
            "--evaluate",
            help="Put each map to the test: what its marking is worth, and whether it changes when "
            "the network's weights are scrambled. At most 40 forward passes a map; scorecam and "
            "ablationcam make theirs six times more.",
        ),
    ] = False
    compare: Annotated[
        list[str] | None,
        _trust(
            "--compare",
            help="Another method beside --method: one evaluated sheet a picture shows all of them. "
            "Repeatable.",
            metavar="METHOD",
            autocompletion=method_names,
        ),
    ] = None
    versus: Annotated[
        Path | None,
        _trust(
            "--versus",
            help="A second checkpoint of the same model: the same maps of both, side by side, with "
            "their difference.",
            metavar="FILE",
        ),
    ] = None
    truth: Annotated[
        str | None,
        _trust(
            "--truth",
            help="The true classes: 'folders' (each picture's folder is named after its class) or "
            "a CSV of pictures and classes. Where the network is wrong, a map of both.",
            metavar="folders|FILE.csv",
        ),
    ] = None
