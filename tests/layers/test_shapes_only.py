from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hookscope.layers.shapes_only import ShapesOnly

aten = torch.ops.aten
X = (2, 6, 9, 7)
vision = torch.ops.torchvision

OPERATIONS: dict[str, tuple[Callable[..., object], list[tuple[int, ...]]]] = {
    "relu": (torch.relu, [X]),
    "gelu of a transposed": (lambda x: F.gelu(x.transpose(1, 2)), [X]),
    "gelu of an expanded": (lambda x: F.gelu(x.expand(4, -1, -1)), [(1, 6, 9)]),
    "silu in place": (lambda x: F.silu(x.clone(), inplace=True), [X]),
    "hardtanh in place": (lambda x: F.relu6(x.clone(), inplace=True), [X]),
    "softmax": (lambda x: x.softmax(1), [X]),
    "gate": (lambda x, s: x * s, [X, (2, 6, 1, 1)]),
    "gate, turned round": (lambda s, x: s * x, [(6, 1, 1), X]),
    "outer sum": (lambda x, y: x + y, [(2, 1, 9), (2, 6, 1)]),
    "add in place": (lambda x, y: x.clone().add_(y), [X, (7,)]),
    "scalars": (lambda x: (x + 1) * 2.0 / 3 + True, [X]),
    "to int and back": (lambda x: x.long() + 1.5, [X]),
    "mean": (lambda x: x.mean((2, 3)), [X]),
    "mean, kept": (lambda x: x.mean(-1, keepdim=True), [X]),
    "mean of all": (lambda x: x.mean(), [X]),
    "cat": (lambda x, y: torch.cat([x, y], 1), [X, (2, 1, 9, 7)]),
    "cat from behind": (lambda x, y: torch.cat([x, y], -1), [X, (2, 6, 9, 1)]),
    "conv": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), [X, (4, 6, 3, 3)]),
    "conv, dilated": (lambda x, w: F.conv2d(x, w, dilation=(2, 3)), [X, (4, 6, 3, 2)]),
    "conv in groups": (lambda x, w: F.conv2d(x, w, groups=3), [X, (9, 2, 1, 1)]),
    "conv, same": (lambda x, w: F.conv2d(x, w, padding="same"), [X, (9, 6, 5, 3)]),
    "conv, no batch": (lambda x, w: F.conv2d(x, w), [(6, 9, 7), (9, 6, 4, 4)]),
    "conv 1d": (F.conv1d, [(2, 6, 9), (4, 6, 2)]),
    "conv 3d": (F.conv3d, [(1, 2, 5, 6, 7), (4, 2, 2, 3, 3)]),
    "conv, transposed": (lambda x, w: F.conv_transpose2d(x, w, stride=2), [X, (6, 4, 3, 3)]),
    "batch norm": (lambda x, m, v: F.batch_norm(x, m, v.abs()), [X, (6,), (6,)]),
    "layer norm": (lambda x: F.layer_norm(x, (9, 7)), [X]),
    "group norm": (lambda x: F.group_norm(x, 3), [X]),
    "linear": (F.linear, [(2, 5, 7), (3, 7), (3,)]),
    "matmul": (torch.matmul, [(2, 3, 5, 7), (2, 3, 7, 4)]),
    "attention": (F.scaled_dot_product_attention, [(2, 3, 5, 7)] * 3),
    "einsum": (lambda x, y: torch.einsum("bchw,bcHW->bhwHW", x, y), [(1, 2, 3, 4)] * 2),
    "resize": (lambda x: F.interpolate(x, (5, 11), mode="bilinear"), [X]),
    "resize twice": (lambda x: [F.interpolate(x, scale_factor=s) for s in (2, 2)], [X]),
    "pool": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), [X]),
    "adaptive pool": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), [X]),
    "window": (lambda x: x.roll((1, -1), (2, 3)).unfold(2, 3, 3).contiguous(), [X]),
    "a constant on the CPU": (lambda x: x * torch.ones(7), [X]),
    "a table on the CPU": (lambda x: x[:, torch.arange(3)], [X]),
    "a mask on the CPU": (lambda x: x[:, torch.tensor([True, False] * 3)], [X]),
    "into a constant": (lambda x: torch.zeros(X).copy_(x), [X]),
    "half": (lambda x: F.relu(x.bfloat16() * 2), [X]),
    "two of one shape": (lambda x: (x.roll(1, 0), x.long().roll(1, 0)), [X]),
}


def described(result: object) -> list[tuple[object, ...]]:
    tensors = [result] if isinstance(result, Tensor) else list(result)  # type: ignore[call-overload]
    return [(tuple(t.shape), t.dtype, t.is_contiguous()) for t in tensors]


@pytest.mark.parametrize("name", OPERATIONS)
def test_shapes_are_those_of_real_operators(name: str) -> None:
    operation, shapes = OPERATIONS[name]
    expected = described(operation(*[torch.rand(shape) for shape in shapes]))
    with ShapesOnly() as mode:
        found = operation(*[torch.empty(shape, device="meta") for shape in shapes])
    assert described(found) == expected
    assert not mode.guessed


# Left out: other kernels on the CPU, and what has no gradient.
ALIKE = sorted(
    OPERATIONS.keys() - {"into a constant", "attention", "einsum", "batch norm", "to int and back"}
)


@pytest.mark.parametrize("name", ALIKE)
def test_the_graph_is_that_of_real_operators(name: str) -> None:
    operation, shapes = OPERATIONS[name]

    def nodes(device: str) -> list[str]:
        inputs = [torch.ones(shape, device=device, requires_grad=True) for shape in shapes]
        result = operation(*inputs)
        tensor = result if isinstance(result, Tensor) else result[0]  # type: ignore[index]
        found, stack = [], [tensor.grad_fn]
        while stack:
            node = stack.pop()
            if node is not None:
                found.append(node.name())
                stack.extend(target for target, _ in node.next_functions)
        return found

    expected = nodes("cpu")
    with ShapesOnly():
        assert nodes("meta") == expected


@pytest.mark.parametrize(
    ("operation", "shapes"),
    [
        (lambda x, w: F.conv2d(x, w), [(1, 3, 8, 8), (4, 5, 3, 3)]),
        (lambda x, w: F.conv2d(x, w), [(1, 3, 2, 2), (4, 3, 3, 3)]),
        (F.linear, [(1, 5), (3, 4)]),
        (torch.bmm, [(2, 3, 4), (2, 5, 4)]),
        (lambda x, y: torch.cat([x, y]), [(1, 2), (1, 3)]),
        (lambda x, y: x.add_(y), [(1, 3), (2, 3)]),
        (lambda x, y: x + y, [(4, 3), (2, 3)]),
        (lambda x: F.layer_norm(x, (4,)), [(2, 3)]),
        (lambda x, m: F.batch_norm(x, m, m), [(2, 3, 4, 4), (5,)]),
    ],
)
def test_what_does_not_fit_is_still_an_error(
    operation: Callable[..., Tensor], shapes: list[tuple[int, ...]]
) -> None:
    with pytest.raises(RuntimeError):
        operation(*[torch.rand(shape) for shape in shapes])
    with ShapesOnly(), pytest.raises(RuntimeError):
        operation(*[torch.empty(shape, device="meta") for shape in shapes])


def test_where_sizes_hang_on_data_all_is_chosen() -> None:
    import torchvision  # noqa: F401 - registers the operator

    with ShapesOnly() as mode:
        x = torch.empty(4, 5, device="meta")
        assert (x > 0).nonzero().shape == (20, 2)
        assert x[x > 0].shape == (20,)
        assert x[x[:, 0] > 0].shape == (4, 5)
        assert vision.nms(torch.empty(9, 4, device="meta"), x.flatten()[:9], 0.5).shape == (9,)
        assert not mode.guessed


def test_a_value_that_is_asked_for_is_guessed_and_said() -> None:
    with ShapesOnly() as mode:
        x = torch.empty(4, 5, device="meta")
        assert not (x > 0).any()
        assert mode.guessed
        assert int(x.sum()) == 1


def test_a_resnet_passes_in_a_fraction_of_the_time() -> None:
    """A ratio within one process, with room: 0.15 where torch answers everything itself."""
    import time

    from torchvision.models import resnet18

    model, x = resnet18().eval().to("meta"), torch.empty(1, 3, 224, 224, device="meta")

    def fastest(run: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            start = time.thread_time()
            run()
            times.append(time.thread_time() - start)
        return min(times)

    def quick() -> None:
        with ShapesOnly():
            model(x)

    with torch.no_grad():
        assert fastest(quick) < 0.6 * fastest(lambda: model(x))


def test_constants_keep_their_values_until_they_meet_what_has_none() -> None:
    with ShapesOnly() as mode:
        steps = torch.linspace(0, 1, 5)
        assert [round(float(step), 2) for step in steps] == [0, 0.25, 0.5, 0.75, 1]
        assert (steps * torch.empty(5, device="meta")).is_meta
        assert not mode.guessed


def test_modules_with_a_device_of_their_own_stay_without_data() -> None:
    class Mover(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to("cpu").float() * 2

    with ShapesOnly():
        assert Mover()(torch.empty(3, device="meta")).is_meta
