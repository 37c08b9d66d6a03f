"""The front door: three subcommands, and one place where failures become exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated, Any

import typer

import hookscope.cli.capture as capture
import hookscope.cli.gradcam as gradcam
import hookscope.cli.list_layers as list_layers
from hookscope import __version__
from hookscope.cli.console import Console, silence_stdout
from hookscope.cli.quick_help import hasten_help
from hookscope.cli.signals import Interrupted
from hookscope.cli.spreading import spread
from hookscope.cli.status import ExitCode
from hookscope.errors import HookscopeError

EPILOG = (
    "[bold]Exit codes[/]: 0 done · 1 some picture or layer failed, the others were done · "
    "2 nothing was started · 130 Ctrl-C · 143 SIGTERM\n\n"
    "[bold]Environment[/]: HOOKSCOPE_MODEL, HOOKSCOPE_DEVICE, HOOKSCOPE_OUT, HOOKSCOPE_OFFLINE, "
    "TORCH_HOME (where weights are cached), NO_COLOR"
)

app = typer.Typer(
    name="hookscope",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"hookscope {__version__}")
        raise typer.Exit()


@app.callback()
def hookscope(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """See inside a PyTorch vision model: its layers, its feature maps, and what it looks at."""


for _name, _module in (("list-layers", list_layers), ("capture", capture), ("gradcam", gradcam)):
    app.command(_name, epilog=EPILOG)(spread(_module.command))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line ``arguments`` (default: the process's) and return its exit code."""
    # Spinning OpenMP threads starve the threads that decode pictures; torch reads this once.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    arguments = sys.argv[1:] if arguments is None else arguments
    _make_streams_usable()
    if os.environ.get("_HOOKSCOPE_COMPLETE", "").startswith("complete_"):
        from hookscope.cli.completion.shells import complete

        return complete(app)
    hasten_help(arguments)
    try:
        result: Any = app(args=arguments, prog_name="hookscope", standalone_mode=False)
        sys.stdout.flush()
    except HookscopeError as error:
        if "--debug" in arguments:
            traceback.print_exc()
        Console.of_process().error(error)
        return ExitCode.UNUSABLE
    except BrokenPipeError:
        silence_stdout()
        return ExitCode.OK
    except OSError as error:  # such as a full disk behind stdout
        if "--debug" in arguments:
            traceback.print_exc()
        silence_stdout()
        Console.of_process().error(str(error))
        return ExitCode.FAILED
    except Interrupted as stopped:
        return stopped.exit_code
    except SystemExit as leaving:
        # typer turns a pipe closed by its reader into exit code 1; a script wants 0.
        if isinstance(leaving.__context__, BrokenPipeError):
            silence_stdout()
            return ExitCode.OK
        raise
    except Exception as error:
        return _usage_error(error)
    return int(result or ExitCode.OK)


def _make_streams_usable() -> None:
    """A closed stdout or stderr (``>&-``) is None, and typer colours its help on CI machines."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (stays open as long as the process)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")


def _usage_error(error: Exception) -> int:
    """Print a complaint of typer's own (recognised by shape: its Click is private)."""
    if isinstance(error.__cause__, KeyboardInterrupt):  # which typer turns into its Abort
        return ExitCode.INTERRUPTED
    if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
        raise error
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return ExitCode.UNUSABLE
    message = error.format_message()
    console = Console.of_process()
    console.error(message)
    if context is not None:
        console.note(f"Try '{context.command_path} --help'.")
    return ExitCode.UNUSABLE
