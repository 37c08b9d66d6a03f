"""How bash, zsh, fish and PowerShell tell what was typed, and how each wants its answers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from hookscope.cli.completion.shells import split


def test_names_that_bash_cuts_into_pieces(found_here, warm):
    pytest.importorskip("timm")
    assert "timm:resnet18" in found_here("capture", "-m", "timm:resnet1")
    assert warm.bash("capture", "-m", "timm", ":", "resnet18") == ["resnet18", "resnet18d"]
    assert "vit_tiny_patch16_224" in warm.bash("capture", "-m", "timm", ":")
    assert "timm:resnet18" in warm.bash("capture", "-m", "tim")
    assert "timm:" in warm.bash("capture", "-m", "")
    assert warm.bash("capture", "-m", "timm", ":", "resnet18.tv") == ["resnet18.tv_in1k"]
    assert warm.bash("capture", "--model", "=", "vgg19_") == ["vgg19_bn"]
    tags = warm.bash("capture", "-m", "timm", ":", "resnet18", "-w", "")
    assert (tags[0], tags[-1]) == ("DEFAULT", "none")
    assert "tv_in1k" in tags


@pytest.mark.parametrize("line", ["hookscope list-layers mobilenet_v", "hookscope list-layers "])
def test_words_that_come_on_one_line(warm, line):
    done = warm.run(_HOOKSCOPE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD="2")
    assert "mobilenet_v2" in done.stdout.splitlines()


def test_class_names_come_in_bashs_own_spelling(warm):
    assert warm.bash("gradcam", "--class", "Egyptian") == [r"Egyptian\ cat"]
    assert warm.bash("gradcam", "--class", r"Egyptian\ c") == [r"Egyptian\ cat"]
    assert warm.bash("gradcam", "--class", "'Egyptian c") == ["Egyptian cat"]
    assert warm.bash("gradcam", "--class", '"Egyptian c') == ["Egyptian cat"]
    assert warm.bash("gradcam", "--class", "jack-o") == [r"jack-o\'-lantern"]
    assert warm.bash("gradcam", "--class", "'jack-o") == [r"jack-o'\''-lantern"]
    assert warm.bash("gradcam", "--class", "=", "Egyp") == [r"Egyptian\ cat"]


def test_labels_of_a_file_come_before_the_models(warm, tmp_path):
    labels = tmp_path / "my labels.txt"
    labels.write_text('ok\nat: 5 $ [big]\nsay "hi"\n')
    given = ("gradcam", "--labels", str(labels).replace(" ", r"\ "), "--class")
    assert warm.bash(*given, "") == ["ok", r"at:\ 5\ \$\ \[big\]", r"say\ \"hi\""]
    assert warm.bash(*given, '"at', ":", "") == []  # inside quotes bash cuts nothing
    assert warm.bash(*given, '"at: 5') == [r"at: 5 \$ [big]"]
    assert warm.bash(*given, "at", ":") == [r"\ 5\ \$\ \[big\]"]
    assert warm.bash("gradcam", "--labels", "gone.txt", "--class", "") == []


def test_zsh_gets_an_array_and_a_word_that_it_quotes_itself(warm, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("at: 5\njack-o'-lantern\n")
    assert warm.zsh(f"gradcam --labels {labels} --class ") == (
        "local -a answers; answers=('at\\: 5' 'jack-o'\"'\"'-lantern'); _describe -V value answers"
    )
    assert "compset -P --class=; " in warm.zsh("gradcam --class=Egyptian")
    assert "'Egyptian cat'" in warm.zsh("gradcam --class=Egyptian")
    assert "'--method:gradcam, " in warm.zsh("gradcam --meth")
    assert warm.zsh("gradcam --out ") == "_files"
    assert warm.zsh("gradcam --class 'no such cl") == "_files"


def test_fish_gets_a_line_each_and_an_exit_code(warm):
    assert warm.fish("gradcam --class Egyptian") == ["Egyptian cat"]
    assert warm.fish("gradcam --class=Egyptian\\ c") == ["--class=Egyptian cat"]
    (method,) = warm.fish("gradcam --meth")
    assert method.startswith("--method\tgradcam, gradcam++")
    for line, code in (("gradcam -m vgg", 0), ("gradcam -o ", 1), ("gradcam -m nosuch", 1)):
        done = warm.run(
            _HOOKSCOPE_COMPLETE="complete_fish",
            _TYPER_COMPLETE_FISH_ACTION="is-args",
            _TYPER_COMPLETE_ARGS=f"hookscope {line}",
        )
        assert (done.returncode, done.stderr) == (code, "")


def test_powershell_gets_quotes_and_a_meaning(warm):
    done = warm.run(
        _HOOKSCOPE_COMPLETE="complete_powershell",
        _TYPER_COMPLETE_ARGS="hookscope gradcam --class jack",
        _TYPER_COMPLETE_WORD_TO_COMPLETE="jack",
    )
    assert done.stdout.splitlines() == ["'jack-o''-lantern'::: ", "jackfruit::: "]


def test_the_script_of_show_completion_completes_in_bash(warm, tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    program = tmp_path / "hookscope"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m hookscope "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(hookscope --show-completion; :)"
        complete -p hookscope
        COMP_WORDS=(hookscope gradcam cat.png --class Egy) COMP_CWORD=4
        _hookscope_completion hookscope
        echo "${#COMPREPLY[@]} ${COMPREPLY[0]}"
    """
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    environment = {**os.environ, **warm.environment, "XDG_CACHE_HOME": str(warm.cache)}
    done = subprocess.run(
        ["bash", "-c", script], env={**environment, "PATH": path}, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "complete -o default -F _hookscope_completion hookscope",
        r"1 Egyptian\ cat",
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", [""]),
        ("a  b", ["a", "b"]),
        ("a ", ["a", ""]),
        (r"a\ b", ["a b"]),
        (r"a\ ", ["a "]),
        ("'a b", ["a b"]),
        ('"a \'b" c', ["a 'b", "c"]),
        (r"'a\b'", [r"a\b"]),
        (r'"a\"b', ['a"b']),
        ("a '' b", ["a", "", "b"]),
    ],
)
def test_words_are_read_as_a_shell_reads_them(line: str, words: list[str]):
    assert split(line) == words
