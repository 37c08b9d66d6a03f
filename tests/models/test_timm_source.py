"""timm's models: its own constructor, its cached weights, its preprocessing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file
from test_preprocess import noise
from timm.data import create_transform, resolve_model_data_config

from hookscope.errors import ModelError, WeightsError
from hookscope.models import weights_cache
from hookscope.models.offline import no_network
from hookscope.models.structure import without_initialisation
from hookscope.models.timm_source import TimmSource


def source(name: str, **arguments: Any) -> TimmSource:
    return TimmSource.named(name, arguments)


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


def put_into_hub_cache(caches: Path, tagged: str, state: dict[str, torch.Tensor]) -> None:
    repository = caches / "hub" / f"models--timm--{tagged}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123")
    (repository / "snapshots" / "0123").mkdir(parents=True)
    save_file(state, repository / "snapshots" / "0123" / "model.safetensors")


@pytest.mark.parametrize(
    "name",
    ["resnet18", "test_vit", "swin_tiny_patch4_window7_224", "maxvit_pico_rw_256"],
)
def test_built_without_initialisation_it_computes_the_same_after_loading(name: str) -> None:
    theirs = timm.create_model(name).eval()
    with without_initialisation():
        mine = source(name).build().eval()
    mine.load_state_dict(theirs.state_dict(), assign=True)
    x = torch.rand(1, *theirs.default_cfg["input_size"])
    with torch.no_grad():
        assert torch.equal(mine(x), theirs(x))


def test_weights_in_the_hubs_cache_need_no_network(caches: Path) -> None:
    model = timm.create_model("test_resnet").eval()
    put_into_hub_cache(caches, "test_resnet.r160_in1k", model.state_dict())
    with no_network("the test is offline"):
        trained = source("test_resnet").pretrained(None, offline=True)
    x = torch.rand(1, 3, 64, 64)
    assert torch.equal(trained.module.eval()(x), model(x))
    assert trained.weights == "r160_in1k"
    assert trained.classes[281:283] == ("tabby", "tiger cat")


def test_weights_in_torchs_cache_need_no_network() -> None:
    config = timm.models.get_pretrained_cfg("resnet18.a2_in1k")
    path = weights_cache.cached_file(config.url)
    path.parent.mkdir(parents=True)
    model = timm.create_model("resnet18").eval()
    torch.save(model.state_dict(), path)
    x = torch.rand(1, 3, 64, 64)
    for typed, weights in (("resnet18.a2_in1k", None), ("resnet18", "a2_in1k")):
        trained = source(typed).pretrained(weights, offline=True)
        assert torch.equal(trained.module.eval()(x), model(x))
        assert trained.weights == "a2_in1k"


@pytest.mark.parametrize("offline", [True, False])
def test_weights_that_cannot_be_had_name_the_ways_out(
    caches: Path, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for proxy in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    put_into_hub_cache(caches, "resnet18.a3_in1k", {"x": torch.zeros(1)})
    with no_network("the test is offline"), pytest.raises(WeightsError) as raised:
        source("resnet18").pretrained(None, offline=offline)
    text = str(raised.value)
    for part in ("a1_in1k", "a3_in1k (--weights", "--checkpoint", "--weights none"):
        assert part in text
    assert ("--offline" in text.splitlines()[0]) == offline


def test_a_cached_file_that_does_not_fit_is_named(caches: Path) -> None:
    put_into_hub_cache(caches, "test_resnet.r160_in1k", {"x": torch.zeros(1)})
    with pytest.raises(WeightsError, match=r"model\.safetensors cannot be loaded"):
        source("test_resnet").pretrained(None, offline=True)


def test_untrained_is_the_ordinary_constructor() -> None:
    torch.manual_seed(5)
    theirs = timm.create_model("test_vit").state_dict()
    torch.manual_seed(5)
    mine = source("test_vit").untrained().state_dict()
    assert all(torch.equal(mine[name], value) for name, value in theirs.items())


def test_the_number_of_classes() -> None:
    assert source("test_resnet").classes == 1000
    assert source("test_resnet").takes("num_classes")
    assert source("test_resnet").build(num_classes=7).num_classes == 7
    assert source("test_resnet", num_classes=5).build(num_classes=7).num_classes == 5
    for wrong in (source("test_resnet", num_classes=5), source("test_resnet")):
        with pytest.raises(WeightsError, match="1000 classes, not 5"):
            wrong.pretrained(None, offline=True, num_classes=5)


@pytest.mark.parametrize("name", ["test_resnet", "resnet18", "vit_tiny_patch16_224"])
def test_pictures_are_prepared_as_timm_does(name: str) -> None:
    with without_initialisation():
        model = source(name).build()
    theirs = create_transform(**resolve_model_data_config(model))
    picture = noise((333, 250))
    mine, _ = source(name).preprocessing(model, None)(picture)
    assert torch.equal(mine, theirs(picture))


def test_the_networks_own_size_and_channels_win() -> None:
    with without_initialisation():
        larger = source("vit_tiny_patch16_224", img_size=384).build()
        grey = source("resnet18", in_chans=1).build()
    assert source("vit_tiny_patch16_224").preprocessing(larger, None).input_size == (384, 384)
    preprocessing = source("resnet18").preprocessing(grey, None)
    assert preprocessing.channels == 1
    assert preprocessing.mean == pytest.approx(((0.485 + 0.456 + 0.406) / 3,))


def test_unknown_names_are_answered_with_the_closest() -> None:
    with pytest.raises(ModelError, match="resnet18"):
        source("rsnet18")
    with pytest.raises(WeightsError, match="a1_in1k"):
        source("resnet18.imagenet")
    with pytest.raises(WeightsError, match="a1_in1k"):
        source("resnet18").pretrained("IMAGENET1K_V1", offline=True)


def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(ModelError, match="flux"):
        source("resnet18", flux=1).build()
