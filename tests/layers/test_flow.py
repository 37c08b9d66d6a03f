"""The cuts of random graphs against taking each node out and looking for a way round it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn

from hookscope.layers.flow import flow


@dataclass(eq=False)
class Node:
    label: str
    next_functions: list[tuple[Node | None, int]] = field(default_factory=list)

    def name(self) -> str:
        return self.label


def drawn(seed: int) -> list[Node]:
    """A graph whose edges lead from earlier to later nodes; the last is the picture."""
    chance = random.Random(seed)
    nodes = [Node(str(i)) for i in range(12)]
    for i, node in enumerate(nodes[:-1]):
        for target in chance.sample(nodes[i + 1 :], min(len(nodes) - i - 1, chance.choice((1, 2)))):
            # Mostly the near ones, else hardly any node is a cut.
            if chance.random() < 0.3:
                target = nodes[i + 1]
            node.next_functions.append((target, 0))
        if chance.random() < 0.2:
            node.next_functions.append((None, 0))
    return nodes


def leads(start: Node, end: Node, without: Node | None = None) -> bool:
    if start is without:
        return False
    return start is end or any(
        leads(target, end, without) for target, _ in start.next_functions if target is not None
    )


@pytest.mark.parametrize("seed", range(60))
def test_a_cut_is_what_no_path_goes_round(seed: int) -> None:
    nodes = drawn(seed)
    score, picture = nodes[0], nodes[-1]
    found = flow((score, 0), [(picture, 0)])
    if not leads(score, picture):
        assert found is None
        return
    assert found is not None
    cuts = {node for node, _ in found.cuts}
    on_path = {node for node in nodes if leads(score, node) and leads(node, picture)}
    assert set(found.position) == on_path
    assert cuts == {node for node in on_path if not leads(score, picture, without=node)}
    for node in on_path:
        for target, _ in node.next_functions:
            if target in on_path:
                assert found.position[node] < found.position[target]


def test_one_of_several_outputs_is_no_cut() -> None:
    picture = torch.zeros(1, 4, 8, 8, requires_grad=True)
    base = picture * 2
    left, right = base.chunk(2, 1)
    both, one = (left + right).sum(), left.sum()
    source = (base.grad_fn, 0)
    assert (left.grad_fn, left.output_nr) not in flow((both.grad_fn, 0), [source]).cuts
    assert (left.grad_fn, left.output_nr) in flow((one.grad_fn, 0), [source]).cuts


def reached(score: Tensor, tokens: Tensor, source: Tensor) -> bool:
    found = flow((score.grad_fn, 0), [(source.grad_fn, 0)])
    assert found is not None
    return tokens.grad_fn in found.reached({tokens.shape[1]})


@pytest.mark.parametrize(
    ("readout", "all_count"),
    [
        (lambda t: t[:, 0], False),
        (lambda t: t[:, :1].sum(1), False),
        (lambda t: t[:, 0] + t[:, 1], False),
        (lambda t: (t * 2).relu()[:, 0], False),
        (lambda t: nn.LayerNorm(6)(t)[:, 0], False),
        (lambda t: (t - t.mean(-1, keepdim=True))[:, 0], False),
        (lambda t: t[:, [0]].sum(1), False),
        (lambda t: t.mean(1), True),
        (lambda t: t[:, 1:].mean(1), True),
        (lambda t: (t @ t.transpose(1, 2) @ t)[:, 0], True),
        (lambda t: nn.functional.scaled_dot_product_attention(t, t, t)[:, 0], True),
        (lambda t: nn.functional.conv1d(t, torch.ones(10, 10, 1))[:, 0], True),
        (lambda t: (t - t.mean(1, keepdim=True))[:, 0], True),
        (lambda t: t[:, 0] + t.amax(1), True),
        (lambda t: t[..., 0], True),
    ],
)
def test_what_a_class_token_readout_loses(readout: object, all_count: bool) -> None:
    x = torch.randn(2, 10, 6, requires_grad=True)
    source = x * 1
    tokens = source * 2
    assert reached(readout(tokens), tokens, source) is all_count
