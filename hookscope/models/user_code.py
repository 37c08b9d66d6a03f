"""Running a user's Python: found where they keep it, and its errors shown at their own line."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from hookscope.errors import HookscopeError, ModelError

_WAYS = (
    "A model is torchvision's NAME, timm:NAME, path/to/net.py:factory, package.module:factory "
    "or a torch.export archive."
)


def from_file(path: Path) -> ModuleType:
    """The module in a ``.py`` file; what lies beside it can be imported, relatively or not.

    Inside a package (folders with ``__init__.py``) it is imported under its full name. The
    folder stays on ``sys.path``, since a factory may import later. Raises ``ModelError``.
    """
    path = path.resolve()
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    _search(root)
    if len(parts) > 1:
        with _running(path):
            module = importlib.import_module(".".join(parts))
        # Another package of that name may have been imported before: then not this one.
        if module.__file__ and Path(module.__file__).resolve() == path:
            return module
    return _beside(path)


def from_package(name: str) -> ModuleType:
    """The module of a dotted ``name``, from the current folder or an installed package."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ModelError(f"{name!r} is not the name of a Python module or file", _WAYS)
    _search(Path.cwd())
    try:
        with _running(None):
            return importlib.import_module(name)
    except ModelError as error:
        missing = getattr(error.__cause__, "name", None)
        if isinstance(error.__cause__, ModuleNotFoundError) and f"{name}.".startswith(
            f"{missing}."
        ):
            raise ModelError(
                f"there is no module {name!r} in the current folder or the installed packages",
                _WAYS,
            ) from None
        raise


@contextmanager
def own_line_shown(doing: str) -> Iterator[None]:
    """A block of user code: what it raises becomes a ``ModelError`` that shows their line.

    ``SystemExit`` too: scripts that parse arguments when imported end in it.
    """
    try:
        yield
    except HookscopeError:
        raise
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ModelError(f"{doing} failed: {reason}", _their_line(error)) from error


@contextmanager
def _running(path: Path | None) -> Iterator[None]:
    doing = f"importing {path.name}" if path else "the import"
    with contextlib.redirect_stdout(sys.stderr), own_line_shown(doing):
        yield


def _search(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _beside(path: Path) -> ModuleType:
    """The file as a member of a made-up package whose folder is the file's."""
    digest = hashlib.sha256(str(path.parent).encode()).hexdigest()[:12]
    package = ModuleType(f"_hookscope_user_{digest}")
    package.__path__ = [str(path.parent)]
    sys.modules.setdefault(package.__name__, package)
    name = f"{package.__name__}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ModelError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with _running(path):
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return module


def _their_line(error: BaseException) -> str:
    """Where it went wrong in the user's code, as Python shows it: file, line, text."""
    if isinstance(error, SyntaxError) and error.filename:
        text = (error.text or "").strip()
        return f"{error.filename}:{error.lineno}\n    {text}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if is_theirs(frame.filename) and frame.line
    ]
    if not frames:
        return ""
    last = frames[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip() or last.line
    return f"{last.filename}:{last.lineno}, in {last.name}\n    {line}"


def is_theirs(filename: str) -> bool:
    """Whether a file of code is the user's own: neither installed nor ours."""
    installed = ("site-packages", "dist-packages", str(Path(sys.base_prefix) / "lib"))
    ours = str(Path(__file__).parent.parent)
    return not filename.startswith((ours, "<")) and not any(part in filename for part in installed)
