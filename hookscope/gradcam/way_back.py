"""The way from a class score back to the picture, through the graph that autograd has recorded."""

from __future__ import annotations

from typing import Any

from torch import Tensor

_Node = Any  # of autograd's graph


def nearest_parameters(score: Tensor, picture: Tensor) -> list[Tensor]:
    """The parameters that each way from ``score`` to ``picture`` meets first, up to and with those
    of the first operation that has a matrix or a kernel.

    ``picture``: a leaf that requires gradients. Where the score does not hang on it, as when a
    network switches gradients off on the way, all parameters of the graph.
    """
    if score.grad_fn is None:
        return []
    order = _children_first(score.grad_fn)
    on_the_way: set[_Node] = set()
    for node in order:
        if getattr(node, "variable", None) is picture or on_the_way.intersection(_inputs(node)):
            on_the_way.add(node)
    found: dict[_Node, Tensor] = {}
    open_ends, met = [score.grad_fn], set()
    while open_ends:
        node = open_ends.pop()
        if node in met:
            continue
        met.add(node)
        own = _leaves([child for child in _inputs(node) if child not in on_the_way])
        found |= own
        if not any(parameter.dim() > 1 for parameter in own.values()):
            open_ends += on_the_way.intersection(_inputs(node))
    return list(found.values())


def _children_first(root: _Node) -> list[_Node]:
    """All nodes below ``root``, each after its inputs."""
    order: list[_Node] = []
    met, stack = set(), [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node is not None and node not in met:
            met.add(node)
            stack.append((node, True))
            stack += [(child, False) for child in _inputs(node)]
    return order


def _inputs(node: _Node) -> list[_Node]:
    return [child for child, _ in node.next_functions if child is not None]


def _leaves(nodes: list[_Node]) -> dict[_Node, Tensor]:
    """The parameters below ``nodes``."""
    return {
        below: below.variable
        for node in nodes
        for below in _children_first(node)
        if hasattr(below, "variable")
    }
