"""A capture equals clones taken by hand, whatever the model does to its tensors afterwards."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hook_networks import NETWORKS, hooks_on
from torch import Tensor, nn
from torchvision import models

from hookscope import ActivationCapture, GradientCapture, LayerNotFoundError
from hookscope.errors import UsageError
from hookscope.layers.modules import named_layers
from hookscope.layers.outputs import tensors_in


class Trace:
    """The oracle: a clone of every tensor of every call, by hooks written by hand."""

    def __init__(self, model: nn.Module, what: str) -> None:
        self.tensors: dict[str, list[list[Tensor]]] = defaultdict(list)
        for name, module in named_layers(model).items():
            if what == "output":
                module.register_forward_hook(
                    lambda module, args, output, name=name: self.keep(name, output)
                )
            else:
                module.register_forward_pre_hook(
                    lambda module, args, kwargs, name=name: self.keep(name, (args, kwargs)),
                    with_kwargs=True,
                )

    def keep(self, name: str, value: Any) -> None:
        self.tensors[name].append([tensor.clone() for _, tensor in tensors_in(value)])


@pytest.mark.parametrize("what", ["output", "input"])
@pytest.mark.parametrize("network", NETWORKS)
def test_every_tensor_of_every_call_equals_a_clone_taken_by_hand(network: str, what: Any) -> None:
    torch.manual_seed(0)
    model = NETWORKS[network]().eval()
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad(), ActivationCapture(model, "*", what=what) as capture:
        model(x)
    assert hooks_on(model) == 0
    trace = Trace(model, what)
    with torch.no_grad():
        model(x)

    taken: dict[str, dict[int, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
    for result in capture.results:
        taken[result.layer][result.call].append(result.tensor)
    assert taken.keys() == trace.tensors.keys()
    for layer, calls in trace.tensors.items():
        assert list(taken[layer]) == list(range(1, len(calls) + 1))
        for ours, theirs in zip(taken[layer].values(), calls, strict=True):
            assert len(ours) == len(theirs)
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_named_calls_of_a_layer_that_runs_twice() -> None:
    model = models.resnet18().eval()
    x = torch.randn(1, 3, 64, 64)
    wanted = ["conv1", "layer1.0.bn1", "layer4.1.bn2", "layer1.0.relu"]
    with torch.no_grad(), ActivationCapture(model, wanted) as capture:
        model(x)
    assert list(capture) == [
        "conv1",
        "layer1.0.bn1",
        "layer1.0.relu@1",
        "layer1.0.relu@2",
        "layer4.1.bn2",
    ]
    assert capture["layer4.1.bn2"].min() < 0, "the in-place addition or ReLU after it came through"
    assert torch.equal(capture["layer1.0.relu"], capture["layer1.0.relu@2"])
    assert torch.equal(capture["conv1@1"], capture["conv1"])
    assert not torch.equal(capture["layer1.0.relu@1"], capture["layer1.0.relu@2"])
    assert "layer1.0.relu@3" not in capture

    with torch.no_grad(), ActivationCapture(model, "layer1.0.relu@1") as first:
        model(x)
    assert list(first) == ["layer1.0.relu@1"]
    assert torch.equal(first["layer1.0.relu@1"], capture["layer1.0.relu@1"])


@dataclass
class Result:
    scores: Tensor
    boxes: list[Tensor]
    note: str = "no tensor"


class Outputs(nn.Module):
    """Returns what it is told to, through a child, and then spoils every tensor in place."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.head = Make(make)

    def forward(self, x: Tensor) -> Tensor:
        output = self.head(x)
        for _, tensor in tensors_in(output):
            tensor.mul_(0)
        return x


class Make(nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda x: (x + 1, (x + 2, [x + 3])), ["head[0]", "head[1][0]", "head[1][1][0]"]),
        (lambda x: {"logits": x + 1, "aux": x + 2, "n": 3}, ["head[logits]", "head[aux]"]),
        (lambda x: OrderedDict(out=x + 1), ["head[out]"]),
        (
            lambda x: Result(x + 1, [x + 2, x + 3]),
            ["head[scores]", "head[boxes][0]", "head[boxes][1]"],
        ),
        (lambda x: [x + 1, None, x + 3], ["head[0]", "head[2]"]),
    ],
)
def test_one_result_for_each_tensor_of_a_structure(make: Any, names: list[str]) -> None:
    x = torch.ones(2, 3)
    model = Outputs(make)
    with ActivationCapture(model, "head") as capture:
        model(x)
    assert list(capture) == names
    for name, (_, expected) in zip(names, tensors_in(make(x)), strict=True):
        assert torch.equal(capture[name], expected)
    with ActivationCapture(model, names[-1]) as one:
        model(x)
    assert list(one) == names[-1:]


def test_an_lstm_is_asked_for_as_a_whole_or_by_item() -> None:
    model = nn.Sequential(OrderedDict(lstm=nn.LSTM(3, 4, batch_first=True)))
    x = torch.randn(2, 5, 3)
    with ActivationCapture(model, "lstm") as capture:
        output, (hidden, cell) = model(x)
    assert list(capture) == ["lstm[0]", "lstm[1][0]", "lstm[1][1]"]
    ours, (our_hidden, our_cell) = capture["lstm"]
    assert torch.equal(ours, output)
    assert torch.equal(our_hidden, hidden)
    assert torch.equal(our_cell, cell)
    assert torch.equal(capture["lstm[1]"][1], cell)
    with pytest.raises(LayerNotFoundError, match=r"lstm\[1\]\[0\]"):
        capture["lstm[2]"]


def test_unknown_layers_are_refused_with_the_closest_names() -> None:
    model = models.resnet18().eval()
    with pytest.raises(KeyError, match=r"layer4\.1"):
        ActivationCapture(model, ["layer4.7"])
    capture = ActivationCapture(model, "layer4.1.bn2")
    with pytest.raises(LayerNotFoundError, match=r"layer4\.1\.bn2"):
        capture["layer4.1.bn"]
    capture.remove()
    with pytest.raises(LayerNotFoundError, match="stop_after"):
        ActivationCapture(model, "layer1", stop_after={"layer2": 1})
    with pytest.raises(UsageError, match="gradient"):
        ActivationCapture(model, "layer1", what="gradient")  # type: ignore[arg-type]
    assert hooks_on(model) == 0


def test_an_input_is_taken_before_the_layer_overwrites_it() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    with (
        ActivationCapture(model, "1", what="input") as inputs,
        ActivationCapture(model, "0") as outputs,
    ):
        model(torch.randn(8, 3))
    assert torch.equal(inputs["1"], outputs["0"])
    assert inputs["1"].min() < 0


def test_several_inputs_are_named_by_position_and_keyword() -> None:
    class Wrapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x + 1, value=x + 2, need_weights=False)[0]

    x = torch.randn(1, 3, 4)
    model = Wrapping()
    with ActivationCapture(model, "attention", what="input") as capture:
        model(x)
    assert list(capture) == ["attention[0]", "attention[1]", "attention[value]"]
    assert torch.equal(capture["attention[value]"], x + 2)


def test_a_layer_with_two_names_answers_to_both() -> None:
    model = nn.Module()
    model.encoder = nn.Linear(3, 3)
    model.tied = model.encoder
    model.forward = lambda x: model.tied(x)
    with ActivationCapture(model, "tied") as capture:
        model(torch.randn(1, 3))
    assert list(capture) == ["encoder"]
    assert torch.equal(capture["tied"], capture["encoder"])


@pytest.mark.parametrize("capture_of", [ActivationCapture, GradientCapture])
def test_modules_stand_for_their_names(capture_of: Any) -> None:
    model = nn.Sequential(OrderedDict(conv=nn.Conv2d(3, 4, 3), stage=nn.Sequential(nn.ReLU())))
    with capture_of(model, [model.conv, "stage.0"]) as capture:
        model(torch.rand(1, 3, 8, 8)).sum().backward()
    assert list(capture) == ["conv", "stage.0"]
    # A Sequential by itself is one layer and not a list of layers.
    with capture_of(nn.DataParallel(model), model.stage) as capture:
        model(torch.rand(1, 3, 8, 8)).sum().backward()
    assert list(capture) == ["stage"]


def test_a_compiled_part_is_found_by_itself_and_by_what_it_was_made_from() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    inner = model[0]
    model[0] = torch.compile(inner, backend="eager")
    for layer in (inner, model[0]):
        with ActivationCapture(model, layer) as capture:
            model(torch.rand(1, 3, 8, 8))
        assert list(capture) == ["0"]


def test_a_module_of_another_model_is_not_found() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3))
    for stranger in (nn.Conv2d(3, 4, 3), model):
        with pytest.raises(LayerNotFoundError, match="no layer of the model"):
            ActivationCapture(model, [stranger])
    assert hooks_on(model) == 0
