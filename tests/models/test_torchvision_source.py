"""torchvision's models: the structure that its own builders give, without their downloads."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision import models

from hookscope.errors import ModelError, UsageError, WeightsError
from hookscope.models.offline import no_network
from hookscope.models.structure import without_initialisation
from hookscope.models.torchvision_source import TorchvisionSource


def source(name: str, **arguments: object) -> TorchvisionSource:
    return TorchvisionSource.named(name, arguments)


def shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in model.state_dict().items()}


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def offline() -> Iterator[None]:
    with no_network("the test is offline"):
        yield


@pytest.mark.parametrize("name", models.list_models())
@pytest.mark.usefixtures("offline", "empty_cache")
def test_every_model_is_built_without_a_download(name: str) -> None:
    with without_initialisation():
        model = source(name).build()
    assert next(iter(model.state_dict()))


@pytest.mark.parametrize(
    "name", ["squeezenet1_1", "googlenet", "mobilenet_v3_small", "lraspp_mobilenet_v3_large"]
)
def test_untrained_is_the_ordinary_constructor(name: str) -> None:
    builder = models.get_model_builder(name)
    backbone = {"weights_backbone": None} if "lraspp" in name else {}
    arguments = {} if name != "googlenet" else {"init_weights": False}
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = builder(weights=None, **backbone, **arguments).state_dict()
    torch.manual_seed(7)
    mine = source(name, **arguments).untrained().state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[key], value) for key, value in theirs.items())


def test_the_number_of_classes_reaches_every_kind_of_head() -> None:
    heads = {
        "resnet18": "fc.weight",
        "vit_b_16": "heads.head.weight",
        "inception_v3": "AuxLogits.fc.weight",
        "fcn_resnet50": "aux_classifier.4.weight",
        "fasterrcnn_resnet50_fpn": "roi_heads.box_predictor.cls_score.weight",
    }
    for name, head in heads.items():
        with without_initialisation():
            assert shapes(source(name).build(num_classes=7))[head][0] == 7
    entry = source("resnet18").default_entry
    assert len(entry.meta["categories"]) == 1000


def test_structure_follows_the_default_weights_not_the_bare_constructor() -> None:
    with without_initialisation():
        assert source("vit_h_14").build().image_size == 518
        assert source("vit_h_14").build(weights="IMAGENET1K_SWAG_LINEAR_V1").image_size == 224
        assert source("vit_b_16", image_size=384).build(num_classes=3).image_size == 384
        googlenet = source("googlenet").build()
        assert googlenet.aux1 is None
        assert googlenet.transform_input
        assert not source("googlenet", transform_input=False).build().transform_input


@pytest.mark.parametrize("name", ["googlenet", "inception_v3", "fcn_resnet50"])
@pytest.mark.parametrize("wanted", [True, False])
def test_auxiliary_heads_as_asked(name: str, wanted: bool) -> None:
    assert source(name).takes("aux_heads")
    with without_initialisation():
        names = shapes(source(name).build(aux_heads=wanted, num_classes=5))
    assert any(key.lower().startswith("aux") for key in names) == wanted


def test_what_a_source_takes() -> None:
    assert source("resnet18").takes("num_classes")
    assert not source("resnet18").takes("aux_heads")
    assert not source("raft_small").takes("num_classes")
    assert source("resnet18").classes == 1000
    assert source("resnet18", num_classes=4).classes == 4
    assert source("raft_small").classes is None


def test_quantised_models_are_float_unless_asked_otherwise() -> None:
    assert source("quantized_resnet18").default_entry == models.ResNet18_Weights.DEFAULT
    quantised = source("quantized_resnet18", quantize=True).default_entry
    assert quantised == models.quantization.ResNet18_QuantizedWeights.DEFAULT
    assert source("quantized_resnet18").entry("IMAGENET1K_FBGEMM_V1") == quantised


@pytest.mark.parametrize("name", ["default", "IMAGENET1K_V2", "ResNet50_Weights.IMAGENET1K_V2"])
def test_an_entry_by_any_of_its_names(name: str) -> None:
    assert source("resnet50").entry(name) is models.ResNet50_Weights.IMAGENET1K_V2


def test_an_unknown_entry_is_answered_with_those_there_are() -> None:
    with pytest.raises(WeightsError, match="DEFAULT, IMAGENET1K_V1, IMAGENET1K_V2, none"):
        source("resnet50").entry("IMAGENET22K")


def test_an_unknown_model_is_answered_with_the_closest() -> None:
    with pytest.raises(ModelError, match="resnet18, "):
        source("resnt18")


def test_names_in_capitals_are_understood() -> None:
    assert source("ResNet18").name == "resnet18"


@pytest.mark.parametrize("argument", ["weights", "weights_backbone", "progress"])
def test_arguments_that_are_not_the_users(argument: str) -> None:
    with pytest.raises(UsageError, match=argument):
        source("resnet18", **{argument: "DEFAULT"})


def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(ModelError, match="with_flux"):
        source("resnet18", with_flux=1).build()
    with pytest.raises(ModelError, match="with_flux"):
        source("resnet18", with_flux=1).untrained()


def test_the_builders_code_is_as_before() -> None:
    before = inspect.getsource(models.WeightsEnum.get_state_dict), nn.Module.load_state_dict
    with without_initialisation():
        source("resnet18").build()
    after = inspect.getsource(models.WeightsEnum.get_state_dict), nn.Module.load_state_dict
    assert after == before
