"""What is printed without any model: help, version, complaints; and that it costs no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hookscope as package

COMMANDS = ("list-layers", "capture", "gradcam")


def test_version(hookscope):
    for flag in ("--version", "-V"):
        ran = hookscope(flag)
        assert (ran.code, ran.out) == (0, f"hookscope {package.__version__}\n")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_three_commands(hookscope, flag):
    ran = hookscope(flag)
    assert ran.code == 0
    assert all(command in ran.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_help_opens_with_examples_and_ends_with_exit_codes(hookscope, command):
    ran = hookscope(command, "--help")
    assert ran.code == 0
    opening, _, _ = ran.out.partition("--layer")
    assert opening.count(f"hookscope {command} ") >= 2
    ending = ran.out[-600:]
    assert "Exit codes" in ending
    assert "HOOKSCOPE_MODEL" in ending


def test_flags_stand_in_panels(hookscope):
    out = hookscope("gradcam", "--help").out
    assert all(
        f"─ {panel} ─" in out for panel in ("Model", "Preprocessing", "Layers", "Output", "Run")
    )


def test_a_flag_reads_the_same_in_each_command(hookscope):
    def row(command: str, flag: str) -> str:
        out = hookscope(command, "--help").out
        return next(line for line in out.splitlines() if flag in line).split(flag)[1].split()[-1]

    assert row("capture", "--seed") == row("gradcam", "--seed")


def test_no_arguments_show_the_help(hookscope):
    ran = hookscope()
    assert ran.code == 2
    assert "list-layers" in ran.out + ran.err


def test_an_unknown_flag_or_command_is_named(hookscope):
    ran = hookscope("gradcam", "cat.png", "--metod", "gradcam")
    assert (ran.code, ran.out) == (2, "")
    assert "--metod" in ran.err
    assert "--method" in ran.err
    assert hookscope("heatmap").code == 2


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["capture", "--help"], ["nope"]])
def test_torch_is_not_imported(arguments):
    script = (
        "import sys\n"
        "from hookscope.cli.app import run\n"
        f"run({arguments!r})\n"
        "heavy = {'torch', 'torchvision', 'matplotlib', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_imports_nothing_heavy():
    script = "import sys, hookscope; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_module_and_script_are_the_same_door():
    done = subprocess.run(
        [sys.executable, "-m", "hookscope", "--version"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"hookscope {package.__version__}\n")


def test_a_closed_pipe_ends_with_0_and_silence():
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m hookscope list-layers resnet18 | head -1; "
         "echo ${PIPESTATUS[0]}"],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_help_loads_no_parser_for_markdown_and_leaves_rich_whole():
    code = (
        "import sys\n"
        "from hookscope.cli.app import run\n"
        "run(['gradcam', '--help'])\n"
        "assert 'markdown_it' not in sys.modules\n"
        "from rich.markdown import Markdown\n"
        "assert Markdown('*a*').markup == '*a*'\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "--top-k" in ran.stdout
