"""The README's table: each counterpart, as it stands there, equals the hooks it replaces."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hooks_by_hand import Net, conv_by_hand, gradient_by_hand
from matplotlib import colormaps
from matplotlib.colors import Normalize
from pictures import open_image
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from hookscope import ActivationCapture, GradientCapture, feature_grid, gradcam
from hookscope.cli.app import run
from hookscope.models.opening import open_model
from hookscope.training import BadInputError, GradientMonitor, check_inputs, clip_gradients

README = (Path(__file__).parent.parent / "README.md").read_text()
ROWS = {
    subject: "\n".join(re.findall(r"`([^`]+)`", now))
    for subject, now in re.findall(r"^\| \*\*(.+?)\*\*.*? \| (.+) \|$", README, re.MULTILINE)
}
COVERED: set[str] = set()


def row(subject: str) -> Callable[[Any], Any]:
    """Marks the test of the table's row ``subject``."""
    COVERED.add(subject)
    return lambda test: test


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(4, 3, 12, 10, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def names(model: Net, x: Tensor) -> dict[str, Any]:
    """What the table's lines may use: hookscope's names, and the reader's own."""

    def train(network: nn.Module) -> None:
        for _ in range(3):
            network.zero_grad()
            network(x).square().sum().backward()

    ours = (ActivationCapture, GradientCapture, GradientMonitor)
    functions = (check_inputs, clip_gradients, feature_grid, mse_loss, train)
    return {
        **{one.__name__: one for one in (*ours, *functions)},
        "gradcam": gradcam,
        "nn": nn,
        "model": model,
        "x": x,
    }


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the pictures and the network of the table's commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOKSCOPE_DEVICE", "cpu")
    imports = "import torch\nfrom torch import Tensor, nn\n\n\n"
    (tmp_path / "net.py").write_text(imports + inspect.getsource(Net))
    (tmp_path / "photos").mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (3, 30, 40, 3), dtype=np.uint8)
    for name, picture in zip(("cat.png", "photos/a.png", "photos/b.png"), pixels, strict=True):
        Image.fromarray(picture).save(tmp_path / name)
    return tmp_path


def now(subject: str, names: dict[str, Any]) -> Any:
    """Runs the counterpart; returns the value of its last line where that is an expression."""
    *before, last = ROWS[subject].splitlines()
    exec("\n".join(before), names)
    try:
        code = compile(last, "README.md", "eval")
    except SyntaxError:
        exec(last, names)
        return None
    return eval(code, names)


def command(subject: str) -> None:
    program, *arguments = shlex.split(ROWS[subject])
    assert program == "hookscope"
    assert run(arguments) == 0


def opened(picture: str) -> tuple[nn.Module, Tensor]:
    """The commands' network, and the batch that it is fed."""
    model = open_model("net.py:Net", weights="none", device="cpu")
    with Image.open(picture) as image:
        tensor, _ = model.preprocessing(image.convert("RGB"))
    return model.module, tensor[None]


@row("a tensor hook on a non-leaf")
def test_a_tensor_hook(names, model, x):
    expected = gradient_by_hand(model, x, Tensor.sum)
    assert torch.equal(now("a tensor hook on a non-leaf", names), expected)
    assert expected.any()


@row("a forward hook")
def test_a_forward_hook(names, model, x):
    expected = conv_by_hand(model, x)
    assert torch.equal(now("a forward hook", names), expected)
    assert (expected < 0).any()  # the ReLU behind has not overwritten it


@row("a pre-hook")
def test_a_pre_hook(names, x):
    assert torch.equal(now("a pre-hook", names), x)


@row("a pre-hook that asserts")
def test_a_pre_hook_that_asserts(names, model, x):
    now("a pre-hook that asserts", names)
    with pytest.raises(BadInputError, match="'conv'"):
        now("a pre-hook that asserts", {**names, "x": x * 2})
    assert not model.conv._forward_pre_hooks


@row("a full backward hook")
def test_a_full_backward_hook(names, model, x):
    x.requires_grad_()
    model.relu.inplace = False  # torch's own hook fails otherwise
    kept = []
    handle = model.conv.register_full_backward_hook(lambda m, *gradients: kept.append(gradients))
    model(x).sum().backward()
    handle.remove()
    (((given,), (returned,)),) = kept
    model.relu.inplace = True
    inputs, outputs = now("a full backward hook", names)
    torch.testing.assert_close(inputs, given)
    torch.testing.assert_close(outputs, returned)


@row("handles in a context")
def test_handles_in_a_context(names, model):
    def train(network: nn.Module) -> None:
        assert network.conv._forward_hooks
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        now("handles in a context", {**names, "train": train})
    assert not model.conv._forward_hooks


@row("several layers at once")
def test_several_layers(names, model, x):
    expected: dict[str, Tensor] = {}
    handles = [
        module.register_forward_hook(lambda m, a, out, name=name: expected.update({name: out + 0}))
        for name, module in model.named_modules()
        if name in ("conv", "head")
    ]
    model(x)
    for handle in handles:
        handle.remove()
    found = now("several layers at once", names)
    assert list(found) == list(expected) == ["conv", "head"]
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@row("a grid")
def test_a_grid(names, model, x, desk):
    now("a grid", names)
    pixels = np.asarray(open_image(desk / "grid.png").convert("RGB")).astype(int)
    place = feature_grid(torch.zeros(4, 10, 8)).info["tiles"]
    for index, channel in enumerate(conv_by_hand(model, x)[0].numpy()):
        row, column = divmod(index, place["cols"])
        top = place["top"] + row * place["cell"][0] + place["caption"]
        left = place["left"] + column * place["cell"][1]
        side = place["tile"][0] // channel.shape[0]
        shown = pixels[top:, left:][side // 2 :: side, side // 2 :: side][:10, :8]
        # What imshow draws, but for the number of colours in the palette.
        by_hand = colormaps["viridis"](Normalize()(channel), bytes=True)[..., :3]
        assert abs(shown - by_hand).max() <= 4


@row("a gradient grid")
def test_a_gradient_grid(desk, capsys):
    command("a gradient grid")
    grid, saved = sorted(capsys.readouterr().out.split(), key=lambda path: path.endswith("npy"))
    network, batch = opened("cat.png")
    expected = gradient_by_hand(network, batch, Tensor.max)[0]
    torch.testing.assert_close(torch.from_numpy(np.load(saved)), expected)
    assert open_image(grid).mode == "P"


@row("a class activation map")
def test_a_class_activation_map(names, model, x):
    activations = conv_by_hand(model, x)
    gradients = gradient_by_hand(model, x, lambda scores: scores[:, 2].sum())
    weights = gradients.mean((2, 3), keepdim=True)
    expected = (weights * activations).sum(1).relu()
    found = now("a class activation map", names)
    torch.testing.assert_close(found, expected)
    assert expected.any()


@row("gradient clipping")
def test_gradient_clipping(names, model, x):
    model(x).sum().backward()
    largest = max(p.grad.abs().max().item() for p in model.parameters())
    nn.utils.clip_grad_value_(model.parameters(), 0.01)
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    now("gradient clipping", names)
    assert largest > 0.01
    for parameter, clipped in zip(model.parameters(), expected, strict=True):
        assert torch.equal(parameter.grad, clipped)


@row("TensorBoard")
def test_tensorboard(names, model, x):
    class Writer:
        """What torch's ``SummaryWriter`` would have written."""

        def __init__(self) -> None:
            self.scalars: dict[str, list[float]] = {}

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            values = self.scalars.setdefault(tag, [])
            assert step == len(values)
            values.append(value)

    writer = Writer()
    now("TensorBoard", {**names, "writer": writer})
    for layer in ("conv", "head"):
        gradients = [p.grad.flatten() for p in getattr(model, layer).parameters()]
        expected = torch.cat(gradients).norm().item()  # the weights stay, so all steps are alike
        assert writer.scalars[f"gradients/{layer}"] == pytest.approx([expected] * 3)


@row("DataParallel")
def test_data_parallel(names, model, x):
    expected = conv_by_hand(model, x)
    if torch.cuda.is_available():
        model.cuda()
    found = now("DataParallel", names).cpu()
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)  # TF32 on a GPU


@row("embeddings")
def test_embeddings(desk, capsys):
    command("embeddings")
    matrix, *_ = (path for path in capsys.readouterr().out.split() if path.endswith(".npy"))
    kept: list[Tensor] = []
    for picture in ("photos/a.png", "photos/b.png"):
        network, batch = opened(picture)
        handle = network.relu.register_forward_hook(
            lambda m, args, output: kept.append(output.mean((2, 3)).detach())
        )
        network(batch)
        handle.remove()
    torch.testing.assert_close(torch.from_numpy(np.load(matrix)), torch.cat(kept))


@row("distillation")
def test_distillation(names, model, x):
    hint = torch.rand_like(conv_by_hand(model, x))
    model.relu.inplace = False  # which would change what this hook keeps
    kept = []
    handle = model.conv.register_forward_hook(lambda m, args, output: kept.append(output))
    model(x)
    handle.remove()
    mse_loss(kept[0], hint).backward()
    expected = model.conv.weight.grad.clone()
    model.zero_grad()
    model.relu.inplace = True
    now("distillation", {**names, "hint": hint})
    torch.testing.assert_close(model.conv.weight.grad, expected)
    assert expected.any()


def test_every_row_of_the_table_has_its_test():
    assert set(ROWS) == COVERED
