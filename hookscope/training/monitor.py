"""Watch gradients flow back while a network trains."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hookscope.errors import UsageError
from hookscope.hooks.compiled import has_compiled_parts
from hookscope.hooks.handles import Handles
from hookscope.hooks.passes import in_backward
from hookscope.hooks.placing import Layers
from hookscope.layers.modules import named_layers, unwrap
from hookscope.layers.outputs import tensors_in
from hookscope.training.backward import at_end_of_backward, running_backward
from hookscope.training.history import GradientHistory, Verdict
from hookscope.training.parameters import parameters_by_layer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ScalarWriter(Protocol):
    """What TensorBoard's ``SummaryWriter`` is to the monitor."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


class GradientMonitor:
    """Records the norm of every layer's gradient in every ``every``-th backward pass.

    >>> with GradientMonitor(model, every=10) as monitor:
    ...     train(model)
    >>> monitor.verdict().message
    >>> monitor.history().parameters      # steps x layers
    >>> monitor.plot().savefig("gradients.png")

    ``layers``: names and patterns. A layer that is named exactly counts with all the parameters
    in it, one that a pattern matches with its own; what has no trained parameters is left out.
    Norms stay on the device until they are asked for. Nothing in the training changes.

    ``writer``: a TensorBoard ``SummaryWriter``; gets ``gradients/LAYER`` and
    ``gradients at outputs/LAYER`` after each recorded step, on rank 0 only. Under
    ``DistributedDataParallel`` the norms are those of this rank, before gradients are averaged;
    with a gradient scaler they are scaled. Of compiled models only parameters are watched, since
    hooks on their modules would undo the compilation.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Layers = "*",
        every: int = 1,
        writer: ScalarWriter | None = None,
    ) -> None:
        if every < 1:
            raise UsageError(f"every={every} is not a whole number above 0")
        self._every = every
        self._writer = writer if _rank() == 0 else None
        self._groups = parameters_by_layer(model, layers)
        self._columns = {layer: column for column, layer in enumerate(self._groups)}
        self._executed: dict[str, None] = {}
        self._step = 0
        self._compiled = has_compiled_parts(model)
        self._running = False
        self._backward = -1
        self._row: _Row | None = None
        self._rows: list[_Row] = []
        self._handles = Handles()
        try:
            self._place_hooks(model)
        except BaseException:
            self._handles.remove()
            raise

    def history(self) -> GradientHistory:
        """What was recorded up to now, as arrays."""
        names = [*self._executed, *(name for name in self._groups if name not in self._executed)]
        order = [self._columns[name] for name in names]
        shape = (len(self._rows), len(names))
        norms = [row.norms(len(names)) for row in self._rows]
        return GradientHistory(
            layers=tuple(names),
            steps=np.array([row.step for row in self._rows], dtype=np.int64),
            parameters=np.reshape([parameters for parameters, _ in norms], shape)[:, order],
            outputs=np.reshape([outputs for _, outputs in norms], shape)[:, order],
        )

    def verdict(self) -> Verdict:
        """The verdict on ``history()``: vanishing, exploding, not finite, or healthy."""
        return self.history().verdict()

    def plot(self) -> Figure:
        """A matplotlib figure of ``history()``: norms over the layers, on a logarithmic scale."""
        return self.history().plot()

    def clear(self) -> None:
        """Forget what was recorded; the hooks stay, and steps count on."""
        self._rows = []

    def remove(self) -> None:
        """Take the hooks away, as often as it is called; the history stays."""
        self._handles.remove()

    def __enter__(self) -> GradientMonitor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def _place_hooks(self, model: nn.Module) -> None:
        root = unwrap(model)
        columns: dict[nn.Parameter, list[int]] = {}
        for layer, parameters in self._groups.items():
            for parameter in parameters:
                columns.setdefault(parameter, []).append(self._columns[layer])
        for parameter, places in columns.items():
            self._handles.add(parameter.register_hook(self._watching("parameters", places)))
        if self._compiled:
            return
        # A backward pass that failed never told its end: the next forward pass does.
        self._handles.add(root.register_forward_pre_hook(lambda module, args: self._end()))
        modules = {type(root).__name__: root, **named_layers(model)}
        for layer in self._groups:
            self._handles.add(modules[layer].register_forward_hook(self._watching_outputs(layer)))

    def _watching_outputs(self, layer: str) -> Callable[..., None]:
        keep = self._watching("outputs", [self._columns[layer]])

        def hook(module: nn.Module, args: Any, output: Any) -> None:
            self._executed.setdefault(layer)
            if self._step % self._every == 0 and torch.is_grad_enabled() and not in_backward():
                for _, tensor in tensors_in(output):
                    if tensor.requires_grad and not tensor.is_leaf:
                        tensor.register_hook(keep)

        return hook

    def _watching(
        self, kind: Literal["parameters", "outputs"], places: list[int]
    ) -> Callable[[Tensor], None]:
        def keep(gradient: Tensor) -> None:
            if len(self._handles) and self._is_new_backward():
                self._begin()
            if self._row is not None:
                self._row.add(kind, places, gradient)

        return keep

    def _is_new_backward(self) -> bool:
        # Checkpointing runs backward passes inside the one that is watched, so another number
        # alone does not tell. Compiled models do not, and their forward passes are not watched.
        if self._compiled:
            return running_backward() != self._backward
        return not self._running

    def _begin(self) -> None:
        self._running = True
        self._backward = running_backward()
        self._row = _Row(self._step) if self._step % self._every == 0 else None
        self._step += 1
        at_end_of_backward(self._end)

    def _end(self) -> None:
        self._running = False
        row, self._row = self._row, None
        if row is None:
            return
        row.close()
        self._rows.append(row)
        if self._writer is not None:
            parameters, outputs = row.norms(len(self._groups))
            for layer, column in self._columns.items():
                for tag, norms in (("gradients", parameters), ("gradients at outputs", outputs)):
                    if not np.isnan(norms[column]):
                        self._writer.add_scalar(f"{tag}/{layer}", float(norms[column]), row.step)


class _Row:
    """The norms of one backward pass: on the device while it runs, and until they are asked for."""

    def __init__(self, step: int) -> None:
        self.step = step
        self._places: dict[str, list[list[int]]] = {"parameters": [], "outputs": []}
        self._norms: dict[str, list[Tensor]] = {"parameters": [], "outputs": []}
        self._closed: dict[str, Tensor] = {}

    def add(self, kind: str, places: list[int], gradient: Tensor) -> None:
        half = gradient.dtype in (torch.float16, torch.bfloat16)
        values = gradient.detach()
        if values.layout != torch.strided:
            values = values.coalesce().values()
        norm = torch.linalg.vector_norm(values, dtype=torch.float32 if half else None)
        self._places[kind].append(places)
        self._norms[kind].append(norm)

    def close(self) -> None:
        """One small tensor a kind in the place of one a gradient."""
        for kind, norms in self._norms.items():
            if norms:
                device = norms[0].device
                self._closed[kind] = torch.stack([norm.to(device).float() for norm in norms])
            self._norms[kind] = []

    def norms(self, columns: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Of parameters and of outputs: one number a column, NaN where no gradient came."""
        return self._by_column("parameters", columns), self._by_column("outputs", columns)

    def _by_column(self, kind: str, columns: int) -> NDArray[np.float32]:
        squares = np.full(columns, np.nan, dtype=np.float64)
        if kind in self._closed:
            self._closed[kind] = values = self._closed[kind].cpu()
            for places, norm in zip(self._places[kind], values.tolist(), strict=True):
                for place in places:
                    square = norm**2 if np.isfinite(norm) else np.inf
                    squares[place] = square if np.isnan(squares[place]) else squares[place] + square
        return np.sqrt(squares).astype(np.float32)


def _rank() -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return 0
