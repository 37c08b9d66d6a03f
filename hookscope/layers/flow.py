"""The autograd graph between a score and the picture: what all paths go through."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from hookscope.layers.recording import Place

Node = Any


@dataclass(frozen=True)
class Flow:
    """Every node on a path from the score to the picture.

    ``position`` counts from the score, readers before what they read. ``cuts`` are the places
    through which all paths go. ``readers`` of a node are the nodes that take its result.
    """

    position: dict[Node, int]
    cuts: frozenset[Place]
    readers: dict[Node, list[Node]]

    def reached(self, tokens: Collection[int]) -> set[Node]:
        """The nodes whose result counts at every position, not only at a class token.

        Going up from a sequence whose length is one of ``tokens``, a selection of one position
        loses the others, unless an operation that mixes positions came before it.
        """
        alive: set[Node] = set()
        for node in self.position:
            readers = self.readers[node]
            if not readers or any(
                _mixes(reader) or (reader in alive and not _selects_one(reader, tokens))
                for reader in readers
            ):
                alive.add(node)
        return alive


def flow(score: Place, sources: Iterable[Place]) -> Flow | None:
    """The flow from ``score`` to the ``sources``; None where no path leads there."""
    top, output = score
    edges = _edges_to(top, {node for node, _ in sources})
    if top not in edges:
        return None
    waiting: Counter[Node] = Counter(target for ends in edges.values() for target, _ in ends)
    entries: dict[Node, set[int]] = defaultdict(set)
    entries[top].add(output)
    readers: dict[Node, list[Node]] = {node: [] for node in edges}
    arriving = Counter(waiting)
    position: dict[Node, int] = {}
    cuts: set[Place] = set()
    ready = deque([top])
    unresolved = 0
    while ready:
        node = ready.popleft()
        # All open edges end here: no path goes round this node.
        if unresolved == arriving[node] and len(entries[node]) == 1:
            cuts.add((node, *entries[node]))
        position[node] = len(position)
        unresolved += len(edges[node]) - arriving[node]
        for target, output in edges[node]:
            entries[target].add(output)
            readers[target].append(node)
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return Flow(position, frozenset(cuts), readers)


def _edges_to(score: Node, sources: set[Node]) -> dict[Node, list[Place]]:
    """node -> the places it reads, for the nodes from which a path leads to a source."""
    below: dict[Node, list[Place]] = {}
    above: dict[Node, list[Node]] = defaultdict(list)
    stack = [score]
    while stack:
        node = stack.pop()
        if node in below:
            continue
        below[node] = [(target, nr) for target, nr in node.next_functions if target is not None]
        for target, _ in below[node]:
            above[target].append(node)
            stack.append(target)
    leading: set[Node] = set()
    stack = [node for node in sources if node in below]
    while stack:
        node = stack.pop()
        if node not in leading:
            leading.add(node)
            stack.extend(above[node])
    return {
        node: [] if node in sources else [place for place in below[node] if place[0] in leading]
        for node in leading
    }


_MIXING = (
    "Bmm", "Baddbmm", "ScaledDotProduct", "Conv", "AvgPool", "MaxPool", "AdaptiveAvgPool",
    "AdaptiveMaxPool", "Cumsum", "LogSumExp",
)  # fmt: skip
_REDUCING = ("Mean", "Sum", "Amax", "Max", "Var", "Std")


def _mixes(node: Node) -> bool:
    name = node.name()
    if name.startswith(_MIXING):
        return True
    if not name.startswith(_REDUCING):
        return False
    sizes = getattr(node, "_saved_self_sym_sizes", None)
    dims = getattr(node, "_saved_dim", None)
    if sizes is None or dims is None:
        return True
    last = len(sizes) - 1
    return any(_signed(dim) % len(sizes) != last for dim in _listed(dims))


def _selects_one(node: Node, tokens: Collection[int]) -> bool:
    name = node.name()
    if not name.startswith(("Select", "Slice", "Index", "Gather")):
        return False
    sizes = getattr(node, "_saved_self_sym_sizes", ())
    if name.startswith(("Index", "Gather")):
        return any(size in tokens for size in sizes[:-1])
    axis = _signed(node._saved_dim) % len(sizes)
    if axis == len(sizes) - 1 or sizes[axis] not in tokens:
        return False
    if name.startswith("Select"):
        return True
    return len(range(*slice(node._saved_start, node._saved_end).indices(sizes[axis]))) == 1


def _listed(dims: Any) -> Iterable[int]:
    return dims if isinstance(dims, (list, tuple)) else (dims,)


def _signed(dim: int) -> int:
    # Saved axes are unsigned in some versions of torch: -1 reads 2**64 - 1.
    return dim - 2**64 if dim >= 2**63 else dim
