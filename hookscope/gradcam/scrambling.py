"""Random weights for a network, as in the sanity checks of Adebayo et al., 2018.

A heatmap that stays the same when the weights behind it become random does not show what the
network has learnt.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hookscope.gradcam.question import Question
from hookscope.gradcam.reading import asked
from hookscope.gradcam.way_back import nearest_parameters
from hookscope.hooks.dressing import dressed


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


def head_of(model: nn.Module, x: Tensor, question: Question) -> list[str]:
    """The names of the parameters that the class scores come out of: those of the classifier.

    They are found in the graph of one forward pass: on each way back from the scores to the
    pictures, the first operation with a matrix or a kernel, and what else was met until then (its
    bias, a scale behind it). A network with several branches to its scores has several. Empty
    where no score hangs on the pictures, as when a detector finds nothing.
    """
    own = dict(model.named_parameters(remove_duplicate=False))
    # The same numbers, but leaves of a graph, whatever the user has frozen.
    leaves = {
        name: nn.Parameter(tensor.detach())
        for name, tensor in own.items()
        if tensor.is_floating_point()
    }
    pictures = x.clone().requires_grad_(True)
    with dressed(model, leaves), torch.enable_grad():
        board = asked(lambda: model(pictures.clone()), pictures, question)
        score = board.scores(board.ranked(1)[:, 0]).sum()
    nearest = {id(one) for one in nearest_parameters(score, pictures)}
    owners = {name.rpartition(".")[0] for name, leaf in leaves.items() if id(leaf) in nearest}
    return [name for name in leaves if name.rpartition(".")[0] in owners]


def _drawn(name: str, parameter: Tensor, generator: torch.Generator) -> nn.Parameter:
    fresh = torch.empty_like(parameter)
    if parameter.dim() > 1:
        # Drawn on the CPU, so that every device gets the same.
        values = torch.randn(parameter.shape, generator=generator)
        fresh.copy_(values * (2 / max(1, parameter[0].numel())) ** 0.5)
    else:
        fresh.fill_(0.0 if name.endswith("bias") else 1.0)
    return nn.Parameter(fresh)
