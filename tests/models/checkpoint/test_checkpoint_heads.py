"""The number of classes is read off the head, whatever the family calls it; so are aux heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from tiny_network import CLASSES, Source, TinyNet, trained
from torch import Tensor, nn
from torchvision import models

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint import load_checkpoint
from hookscope.models.checkpoint.candidates import Scope
from hookscope.models.checkpoint.class_names import class_names
from hookscope.models.checkpoint.head import best_match
from hookscope.models.checkpoint.leaves import find_leaves
from hookscope.models.spec import resolve
from hookscope.models.structure import without_initialisation

FAMILIES: dict[str, str] = {}
for _name in models.list_models(module=models, exclude=["googlenet", "inception_v3"]):
    FAMILIES.setdefault(models.get_model_builder(_name).__module__, _name)
SMALLEST = {
    "resnet101": "resnet18",
    "efficientnet_v2_l": "efficientnet_b0",
    "convnext_base": "convnext_tiny",
    "regnet_x_16gf": "regnet_x_400mf",
    "swin_b": "swin_t",
}


@pytest.mark.parametrize("classes", [37])
@pytest.mark.parametrize("name", [SMALLEST.get(name, name) for name in FAMILIES.values()])
def test_every_family_of_classifiers(name: str, classes: int) -> None:
    with without_initialisation():
        network = models.get_model(name, weights=None, num_classes=classes)
    leaves = find_leaves({"model": network.state_dict()}).leaves
    match = best_match(resolve(name), leaves, Scope(), None, "best.pth")
    assert match is not None
    assert match.fit.perfect
    assert match.variant.num_classes == classes


@pytest.mark.parametrize("classes", [1000, 7])
@pytest.mark.parametrize("aux", [True, False])
@pytest.mark.parametrize("name", ["inception_v3", "googlenet"])
def test_inception_and_googlenet_with_and_without_auxiliary_heads(
    name: str, aux: bool, classes: int
) -> None:
    with without_initialisation():
        network = models.get_model(
            name, weights=None, aux_logits=aux, init_weights=False, num_classes=classes
        )
    leaves = find_leaves(network.state_dict()).leaves
    match = best_match(resolve(name), leaves, Scope(), None, "best.pth")
    assert match is not None
    assert match.fit.perfect
    assert match.module.state_dict().keys() == network.state_dict().keys()


@pytest.mark.parametrize(
    ("name", "classes"),
    [("ssdlite320_mobilenet_v3_large", 6), ("lraspp_mobilenet_v3_large", 4), ("r3d_18", 9)],
)
def test_detectors_segmentation_and_video_too(name: str, classes: int) -> None:
    """An SSD's head has several rows a class, a detector's box head four."""
    source = resolve(name)
    with without_initialisation():
        network = source.build(num_classes=classes)
    leaves = find_leaves(network.state_dict()).leaves
    match = best_match(source, leaves, Scope(), None, "best.pth")
    assert match is not None
    assert match.fit.perfect
    assert match.variant.num_classes == classes


def test_the_head_is_loaded_and_the_structure_built_no_more_often_than_it_takes(
    saved: Callable[..., Path],
) -> None:
    net = trained(TinyNet(num_classes=11))
    source = Source()
    model, account = load_checkpoint(saved(net.state_dict()), source)
    assert torch.equal(model.head.weight, net.head.weight)  # type: ignore[union-attr]
    assert account.num_classes == 11
    assert "11 classes" in account.line()
    assert [each["num_classes"] for each in source.built] == [None, 11]


def test_num_classes_overrides(saved: Callable[..., Path]) -> None:
    path = saved(trained(TinyNet(num_classes=11)).state_dict())
    with pytest.raises(CheckpointError, match="written for 11 classes, the model has 6"):
        load_checkpoint(path, Source(), num_classes=6)
    model, account = load_checkpoint(path, Source(), num_classes=6, allow_missing=True)
    assert model.head.out_features == 6  # type: ignore[union-attr]
    assert account.missing == ("head.weight", "head.bias")
    assert account.num_classes == 6


def test_a_source_that_takes_no_number_of_classes_is_told_which_were_meant(
    saved: Callable[..., Path],
) -> None:
    path = saved(trained(TinyNet(num_classes=11)).state_dict())
    with pytest.raises(CheckpointError, match="written for 11 classes, the model has 5"):
        load_checkpoint(path, Source(variants=()))


NAMES = ("ant", "bee", "cat", "dog", "elk")


@pytest.mark.parametrize(
    "beside",
    [
        {"class_to_idx": {name: index for index, name in enumerate(NAMES)}},
        {"class_to_idx": {name: np.int64(index) for index, name in enumerate(NAMES)}},
        {"idx_to_class": dict(enumerate(NAMES))},
        {"classes": list(NAMES)},
        {"CLASSES": NAMES},
        {"names": dict(enumerate(NAMES))},
        {"class_names": np.array(NAMES)},
        {"meta": {"dataset": {"classes": list(NAMES)}}},
        {"hyper_parameters": {"id2label": {str(i): name for i, name in enumerate(NAMES)}}},
        {"classes": list("abcdefg"), "names": list(NAMES)},
        {"names": [1, 2, 3, 4, 5], "labels": list(NAMES)},
    ],
    ids=lambda beside: "+".join(beside),
)
def test_class_names_under_a_common_key(
    beside: dict[str, Any], state: dict[str, Tensor], saved: Callable[..., Path]
) -> None:
    _, account = load_checkpoint(saved({"model": state, **beside}), Source())
    assert account.classes == NAMES
    assert "5 classes, named" in account.line()


@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"classes": list("abcd")},
        {"classes": 5},
        {"class_to_idx": {"a": 0, "b": 0, "c": 1, "d": 2, "e": 3}},
        {"names": "abcde"},
        {"classes": '["a", "b"'},
    ],
    ids=str,
)
def test_no_class_names_where_they_do_not_number_the_classes(
    beside: dict[str, Any], state: dict[str, Tensor], saved: Callable[..., Path]
) -> None:
    _, account = load_checkpoint(saved({"model": state, **beside}), Source())
    assert account.classes is None
    assert account.num_classes == CLASSES


def test_class_names_in_the_notes_of_a_safetensors_file(net: nn.Module, tmp_path: Path) -> None:
    notes = {"classes": json.dumps(NAMES), "format": "pt"}
    safetensors.torch.save_file(net.state_dict(), tmp_path / "a", metadata=notes)
    assert load_checkpoint(tmp_path / "a", Source())[1].classes == NAMES


def test_names_are_counted_by_the_head_where_the_source_does_not_know(
    state: dict[str, Tensor], saved: Callable[..., Path]
) -> None:
    path = saved({"model": state, "classes": list(NAMES)})
    assert load_checkpoint(path, Source(classes=None))[1].classes == NAMES
    path = saved({"model": state, "classes": ["a", "b"]})
    assert load_checkpoint(path, Source(classes=None))[1].classes is None


def test_names_are_not_looked_for_among_the_weights() -> None:
    assert class_names({"names": torch.ones(3), "model": {"classes": torch.ones(2)}}, None) is None
