from __future__ import annotations

import pytest
import torch
from torch import nn

from hookscope.errors import LayerNotFoundError
from hookscope.layers.addresses import Address, Selection, chosen, select


@pytest.fixture
def network() -> nn.Module:
    def stage() -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU(), nn.LSTM(3, 3))

    model = nn.Module()
    model.layer1 = stage()
    model.layer2 = stage()
    model.head = nn.Linear(3, 3)
    return model


def names(selections: list[Selection]) -> list[str]:
    return [selection.layer for selection in selections]


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("layer1.0.relu", 2), "layer1.0.relu@2"),
        (Address("lstm", None, (1, 0)), "lstm[1][0]"),
        (Address("head", None, ("logits",)), "head[logits]"),
        (Address("x", 2, (0,)), "x@2[0]"),
        (Address("conv1"), "conv1"),
    ],
)
def test_an_address_is_written_as_it_is_typed(address: Address, text: str) -> None:
    assert str(address) == text
    model = nn.Module()
    for part in ("conv1", "lstm", "head", "x"):
        model.add_module(part, nn.Identity())
    model.layer1 = nn.Sequential(nn.Module())
    model.layer1[0].relu = nn.ReLU()
    (selection,) = select(model, [text])
    assert (selection.layer, selection.call, selection.item) == (
        address.layer,
        address.call,
        address.item,
    )
    assert selection.exact
    assert selection.covers(address)


def test_an_exact_name_is_not_read_as_a_pattern(network: nn.Module) -> None:
    network.add_module("layer[12]", nn.ReLU())
    assert names(select(network, ["layer[12]"])) == ["layer[12]"]
    # Without a layer of that name, brackets are a character class.
    del network._modules["layer[12]"]
    assert names(select(network, ["layer[12]"])) == ["layer1", "layer2"]


def test_globs_cross_dots_and_come_in_the_order_of_the_model(network: nn.Module) -> None:
    assert names(select(network, ["layer2*", "*.0"])) == [
        "layer1.0", "layer2", "layer2.0", "layer2.1", "layer2.2",
    ]  # fmt: skip
    assert not any(selection.exact for selection in select(network, ["*.0"]))


def test_a_range_behind_a_layers_name_is_a_glob_and_an_index_is_an_item() -> None:
    model = nn.Module()
    model.features = nn.Sequential(*(nn.ReLU() for _ in range(14)))
    assert names(select(model, ["features.1[0-2]"])) == [f"features.{k}" for k in (10, 11, 12)]
    assert names(select(model, ["features.1[!0-2]"])) == ["features.13"]
    (one,) = select(model, ["features.1[0]"])
    assert (one.layer, one.item, one.exact) == ("features.1", (0,), True)
    (key,) = select(model, ["features.9[a-b]"])  # nothing else that it could be
    assert (key.layer, key.item) == ("features.9", ("a-b",))


def test_call_and_item_are_split_off_a_glob(network: nn.Module) -> None:
    assert [(s.layer, s.call, s.item) for s in select(network, ["*.2@1[1][0]"])] == [
        ("layer1.2", 1, (1, 0)),
        ("layer2.2", 1, (1, 0)),
    ]


def test_types_alone_choose_and_with_patterns_restrict(network: nn.Module) -> None:
    assert names(select(network, types=["ReLU", "Linear"])) == ["layer1.1", "layer2.1", "head"]
    assert names(select(network, ["layer1*"], ["ReLU", "Linear"])) == ["layer1.1"]
    with pytest.raises(LayerNotFoundError, match="of type ReLU"):
        select(network, ["head"], ["ReLU"])


def test_a_layer_chosen_twice_comes_once_and_stays_exact(network: nn.Module) -> None:
    (selection,) = select(network, ["he*", "head"])
    assert selection.exact
    both = select(network, ["head@2", "head"])
    assert [selection.call for selection in both] == [None, 2]


@pytest.mark.parametrize("pattern", ["layer3.0", "lyaer1.0", "LAYER1.0", "layer1.0.*"])
def test_an_unknown_layer_names_the_three_closest(network: nn.Module, pattern: str) -> None:
    with pytest.raises(LayerNotFoundError) as caught:
        select(network, [pattern])
    assert isinstance(caught.value, KeyError)
    assert pattern in caught.value.message
    near = caught.value.hint.split("Closest: ")[1].split(". ")[0].split(", ")
    assert len(near) == 3
    assert "layer1.0" in near


def test_an_unknown_type_names_the_closest(network: nn.Module) -> None:
    with pytest.raises(LayerNotFoundError, match="Conv2d"):
        select(network, types=["conv2"])


def test_wrappers_have_no_part_in_names(network: nn.Module) -> None:
    network.layer1 = torch.compile(network.layer1, backend="eager")
    wrapped = nn.DataParallel(network)
    assert names(select(wrapped, ["layer1.0", "layer1"])) == ["layer1", "layer1.0"]


def test_a_shared_module_answers_to_each_of_its_names(network: nn.Module) -> None:
    network.again = network.head
    (selection,) = select(network, ["again@2"])
    assert (selection.layer, selection.call, selection.exact) == ("head", 2, True)


def test_what_runs_is_told_from_what_was_asked_for() -> None:
    ran = [Address("relu", 1), Address("relu", 2), Address("lstm", None, (1, 0)), Address("conv")]
    asked = [
        Selection("relu", 2, (), exact=True, pattern="relu@2"),
        Selection("relu", 3, (), exact=True, pattern="relu@3"),
        Selection("lstm", None, (1,), exact=True, pattern="lstm[1]"),
        Selection("conv", 1, (), exact=True, pattern="conv@1"),
        Selection("lstm", None, (0,), exact=True, pattern="lstm[0]"),
    ]
    taken, missing = chosen(asked, ran)
    assert taken == ran[1:]
    assert [selection.pattern for selection in missing] == ["relu@3", "lstm[0]"]
