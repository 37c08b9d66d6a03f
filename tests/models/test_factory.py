"""A user's own file or package: found with what lies beside it, its errors shown as theirs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from torch import nn

from hookscope.errors import ModelError, UsageError, WeightsError
from hookscope.models.factory import FactorySource


@pytest.fixture(autouse=True)
def _clean_imports() -> Iterator[None]:
    modules, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(path: Path, code: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(code))
    return path


def located(spec: object, **arguments: Any) -> FactorySource:
    return FactorySource.located(str(spec), arguments)


NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, width=4, *, num_classes=10):
            super().__init__()
            self.conv = nn.Conv2d(3, width, 3)
            self.fc = nn.Linear(width, num_classes)

        def forward(self, x):
            return self.fc(self.conv(x).mean((2, 3)))

    def make(width=8):
        return Net(width)

    async_name = 3
"""


def test_a_class_and_a_function(tmp_path: Path) -> None:
    file = write(tmp_path / "net.py", NET)
    for name, width in (("Net", 4), ("make", 8)):
        source = located(f"{file}:{name}")
        assert (source.name, source.kind) == (name, "factory")
        assert source.build().conv.out_channels == width


def test_arguments_reach_the_factory(tmp_path: Path) -> None:
    file = write(tmp_path / "net.py", NET)
    assert located(f"{file}:make", width=2).build().conv.out_channels == 2


def test_the_number_of_classes_where_it_is_taken(tmp_path: Path) -> None:
    file = write(tmp_path / "net.py", NET)
    network, function = located(f"{file}:Net"), located(f"{file}:make")
    assert network.takes("num_classes")
    assert not function.takes("num_classes")
    assert not network.takes("aux_heads")
    assert network.build(num_classes=3).fc.out_features == 3
    assert function.build(num_classes=3).fc.out_features == 10
    assert located(f"{file}:Net", num_classes=5).build(num_classes=3).fc.out_features == 5


@pytest.mark.parametrize(
    "line", ["from .blocks import width", "from blocks import width", "from . import blocks"]
)
def test_imports_of_what_lies_beside(tmp_path: Path, line: str) -> None:
    write(tmp_path / "blocks.py", "width = 5")
    value = "blocks.width" if line.endswith("blocks") else "width"
    file = write(
        tmp_path / "net.py",
        f"""
        from torch import nn
        {line}
        def make():
            from .blocks import width as late  # importing inside the factory works too
            assert late == {value}
            return nn.Conv2d(3, {value}, 1)
        """,
    )
    assert located(f"{file}:make").build().out_channels == 5


def test_inside_a_package_its_relative_imports_reach_up(tmp_path: Path) -> None:
    for folder in ("zoo_a", "zoo_a/nets"):
        write(tmp_path / folder / "__init__.py", "")
    write(tmp_path / "zoo_a" / "common.py", "width = 6")
    file = write(
        tmp_path / "zoo_a/nets/net.py",
        """
        from torch import nn
        from ..common import width
        from zoo_a.common import width as same
        class Net(nn.Conv2d):
            def __init__(self):
                super().__init__(3, width, 1)
        """,
    )
    source = located(f"{file}:Net")
    assert source.build().out_channels == 6
    assert source.make.__module__ == "zoo_a.nets.net"


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    for width in (2, 3):
        folder = tmp_path / f"project{width}" / "models_here"
        write(folder / "__init__.py", "")
        code = f"from torch import nn\ndef make(): return nn.Conv2d(3, {width}, 1)"
        assert located(f"{write(folder / 'net.py', code)}:make").build().out_channels == width


def test_a_file_named_like_an_installed_module_is_itself(tmp_path: Path) -> None:
    file = write(tmp_path / "json.py", "from torch import nn\ndef make(): return nn.Identity()")
    assert isinstance(located(f"{file}:make").build(), nn.Identity)


def test_a_dataclass_in_the_file_works(tmp_path: Path) -> None:
    file = write(
        tmp_path / "net.py",
        """
        from __future__ import annotations
        from dataclasses import dataclass
        from torch import nn
        @dataclass
        class Config:
            width: int = 4
        def make():
            return nn.Conv2d(3, Config().width, 1)
        """,
    )
    assert located(f"{file}:make").build().out_channels == 4


def test_a_module_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "shelf_b" / "nets.py", NET)
    monkeypatch.chdir(tmp_path)
    assert located("shelf_b.nets:make").build().conv.out_channels == 8


def test_an_installed_module_and_a_nested_name() -> None:
    assert isinstance(located("torch.nn:Identity").build(), nn.Identity)
    assert isinstance(located("torch:nn.Identity").build(), nn.Identity)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("no_such_module_c:make", "no module 'no_such_module_c'"),
        ("torch.no_such:make", "no module 'torch.no_such'"),
        ("not a module:make", "not the name of a Python module"),
        ("missing.py:make", "no file missing.py"),
        ("torch.nn:Identty", "Did you mean Identity"),
        ("torch:__version__", "not a class or function"),
    ],
)
def test_what_is_not_there(spec: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        located(spec)


def test_a_file_alone_is_answered_with_what_it_holds(tmp_path: Path) -> None:
    file = write(tmp_path / "net.py", NET)
    with pytest.raises(UsageError, match=r"net\.py:Net"):
        located(file)


def test_a_network_object_is_refused_with_a_way_out(tmp_path: Path) -> None:
    file = write(tmp_path / "net.py", "from torch import nn\nmodel = nn.Identity()")
    with pytest.raises(ModelError, match="def make"):
        located(f"{file}:model")


@pytest.mark.parametrize("returned", ["None", "(nn.Identity(), 3)", "nn.Identity"])
def test_what_is_no_network_is_refused(tmp_path: Path, returned: str) -> None:
    file = write(tmp_path / "net.py", f"from torch import nn\ndef make(): return {returned}")
    with pytest.raises(ModelError, match=r"make\(\) returned a"):
        located(f"{file}:make").build()


def test_arguments_that_are_not_taken_are_answered_with_those_that_are(tmp_path: Path) -> None:
    file = write(tmp_path / "net.py", NET)
    with pytest.raises(ModelError, match="depth") as raised:
        located(f"{file}:make", depth=3)
    assert "width=8" in str(raised.value)


def test_an_argument_that_is_needed_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "net.py", "def make(depth): ...")
    with pytest.raises(ModelError, match="depth"):
        located(f"{file}:make")


def test_weights_are_the_factorys_own(tmp_path: Path) -> None:
    source = located(f"{write(tmp_path / 'net.py', NET)}:make")
    trained = source.pretrained(None, offline=True)
    assert (trained.weights, trained.classes) == (None, ())
    with pytest.raises(WeightsError, match="used as returned"):
        source.pretrained("DEFAULT", offline=True)


@pytest.mark.parametrize(
    ("code", "reason", "line"),
    [
        ("def make():\n    return 1 / 0", "ZeroDivisionError", "return 1 / 0"),
        ("import torch\ndef make():\n    torch.zeros(2) @ torch.zeros(3)", "RuntimeError", "@"),
        ("x = undefined", "NameError", "x = undefined"),
        ("def make(:", "SyntaxError", "def make(:"),
        ("import no_such_thing", "ModuleNotFoundError", "import no_such_thing"),
        ("import sys\nsys.exit(3)", "SystemExit: 3", "sys.exit(3)"),
    ],
)
def test_errors_show_the_users_own_line(tmp_path: Path, code: str, reason: str, line: str) -> None:
    file = write(tmp_path / "broken.py", code)
    with pytest.raises(ModelError, match=reason) as raised:
        located(f"{file}:make").build()
    text = str(raised.value)
    number = next(n for n, text in enumerate(code.splitlines(), 1) if line in text)
    assert f"{file}:{number}" in text
    assert line in text
    assert "Traceback" not in text


def test_an_error_in_a_module_beside_shows_that_line(tmp_path: Path) -> None:
    write(tmp_path / "blocks.py", "def width():\n    raise KeyError('w')")
    file = write(tmp_path / "net.py", "from .blocks import width\ndef make():\n    return width()")
    with pytest.raises(ModelError, match=r"blocks\.py:2, in width"):
        located(f"{file}:make").build()


def test_a_missing_import_of_an_existing_module_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "shelf_d.py", "import no_such_thing")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"no_such_thing[\s\S]*shelf_d\.py:1"):
        located("shelf_d:make")


def test_what_user_code_prints_goes_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(
        tmp_path / "net.py",
        """
        from torch import nn
        print("importing")
        def make():
            print("building")
            return nn.Identity()
        """,
    )
    located(f"{file}:make").build()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "importing\nbuilding\n"


def test_preprocessing_follows_the_network(tmp_path: Path) -> None:
    file = write(
        tmp_path / "net.py",
        """
        from torch import nn
        def grey(): return nn.Conv2d(1, 2, 3)
        def colour(): return nn.Conv2d(3, 2, 3)
        def fixed():
            net = nn.Conv2d(3, 2, 3)
            net.image_size = 64
            return net
        """,
    )
    found = {
        name: source.preprocessing(source.build(), None)
        for name in ("grey", "colour", "fixed")
        for source in [located(f"{file}:{name}")]
    }
    assert (found["grey"].channels, found["grey"].mean) == (1, None)
    assert (found["colour"].resize, found["colour"].crop) == (256, (224, 224))
    assert (found["fixed"].resize, found["fixed"].crop) == (73, (64, 64))
    assert torch.allclose(torch.tensor(found["colour"].mean), torch.tensor([0.485, 0.456, 0.406]))


def test_a_network_of_one_size_is_fed_that_size(tmp_path):
    """A linear layer behind unpooled maps takes one input size, and no attribute names it."""
    path = tmp_path / "lenet.py"
    path.write_text(
        "from torch import nn\n"
        "class LeNet(nn.Sequential):\n"
        "    def __init__(self):\n"
        "        super().__init__(\n"
        "            nn.Conv2d(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2),\n"
        "            nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),\n"
        "            nn.Flatten(), nn.Linear(16 * 5 * 5, 10),\n"
        "        )\n"
    )
    source = FactorySource.located(f"{path}:LeNet", {})
    preprocessing = source.preprocessing(source.build(), None)
    assert preprocessing.input_size == (32, 32)
    assert preprocessing.channels == 1
