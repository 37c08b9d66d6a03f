"""Random weights for a network, as in the sanity checks of Adebayo et al., 2018.

A heatmap that stays the same when the weights behind it become random does not show what the
network has learnt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hookscope.gradcam.question import Question
from hookscope.gradcam.reading import asked
from hookscope.hooks.dressing import Dress, dressed


def scrambled(model: nn.Module, seed: int) -> dict[str, Tensor]:
    """Freshly drawn parameters for all of ``model``, and buffers of normalisation as at the start.

    Matrices and kernels are drawn as by He et al., 2015: normal, with the variance 2 / fan-in, so
    that what flows through a deep network neither dies nor grows beyond bounds. Scales become 1
    and biases 0; running means 0 and running variances 1. Other buffers stay.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn: dict[int, Tensor] = {}  # a parameter in two places stays one
    dress: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.is_floating_point():
            found = drawn.get(id(parameter))
            if found is None:
                found = drawn[id(parameter)] = _drawn(name, parameter.detach(), generator)
            dress[name] = found
    for name, buffer in model.named_buffers(remove_duplicate=False):
        start = {"running_mean": 0.0, "running_var": 1.0}.get(name.rpartition(".")[2])
        if start is not None:
            dress[name] = torch.full_like(buffer, start)
    return dress


def head_of(model: nn.Module, x: Tensor, question: Question, dress: Dress) -> list[str]:
    """The names of the parameters that the class scores come out of: those of the classifier.

    They are found in the graph of one forward pass in ``dress``: the first module on the way back
    from the score that owns a matrix or a kernel, with what else was met until then (its bias, a
    scale behind it).
    """
    names: dict[int, str] = {}
    for name, tensor in dress.items():
        if isinstance(tensor, nn.Parameter):
            names.setdefault(id(tensor), name)
    with dressed(model, dress), torch.enable_grad():
        board = asked(lambda: model(x[:1].clone()), x[:1], question)
        score = board.scores(board.ranked(1)[:, 0])
    found: list[str] = []
    for parameter in _on_the_way_back(score):
        if id(parameter) in names:
            found.append(names[id(parameter)])
            if parameter.dim() > 1:
                break
    owners = {name.rpartition(".")[0] for name in found}
    return [name for name in names.values() if name.rpartition(".")[0] in owners]


def _on_the_way_back(score: Tensor) -> Iterator[Any]:
    """The leaves of the graph, those nearest to ``score`` first."""
    queue, met = deque([score.grad_fn]), set()
    while queue:
        node = queue.popleft()
        if node is None or node in met:
            continue
        met.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        queue.extend(following for following, _ in node.next_functions)


def _drawn(name: str, parameter: Tensor, generator: torch.Generator) -> nn.Parameter:
    fresh = torch.empty_like(parameter)
    if parameter.dim() > 1:
        # Drawn on the CPU, so that every device gets the same.
        values = torch.randn(parameter.shape, generator=generator)
        fresh.copy_(values * (2 / max(1, parameter[0].numel())) ** 0.5)
    else:
        fresh.fill_(0.0 if name.endswith("bias") else 1.0)
    return nn.Parameter(fresh)
