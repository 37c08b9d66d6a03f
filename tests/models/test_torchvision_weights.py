"""torchvision's weights: what its own builders make of the same file, without the copies."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torchvision import models

from hookscope.errors import WeightsError
from hookscope.models import weights_cache
from hookscope.models.offline import no_network
from hookscope.models.structure import without_initialisation
from hookscope.models.torchvision_source import TorchvisionSource


def source(name: str, **arguments: object) -> TorchvisionSource:
    return TorchvisionSource.named(name, arguments)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def offline() -> Iterator[None]:
    with no_network("the test is offline"):
        yield


# One of each way in which a builder treats its weights: plain, renamed keys, heads taken off
# afterwards, old versions converted, constants set afterwards, sizes of their own, dicts.
TREATED = [
    "resnet18",
    "densenet121",
    "googlenet",
    "mnasnet0_5",
    "fasterrcnn_mobilenet_v3_large_fpn",
    "lraspp_mobilenet_v3_large",
    "deeplabv3_mobilenet_v3_large",
    "raft_small",
]


def cache_weights(entry: models.WeightsEnum, model: nn.Module) -> Path:
    """Random weights in the file where torchvision looks for those of ``entry``."""
    path = weights_cache.cached_file(entry.url)
    path.parent.mkdir(parents=True, exist_ok=True)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.05)
    torch.save(model.state_dict(), path)
    return path


@pytest.mark.parametrize("name", TREATED)
@pytest.mark.usefixtures("empty_cache")
def test_pretrained_is_what_torchvision_makes_of_the_same_file(name: str) -> None:
    ours = source(name)
    entry = ours.default_entry
    with without_initialisation():
        # Auxiliary heads are in the file, whether or not they stay in the network.
        cache_weights(entry, ours.build(aux_heads=True))
    trained = ours.pretrained(None, offline=True)
    with warnings.catch_warnings():
        # GoogLeNet's and Inception's, about their initialisation.
        warnings.simplefilter("ignore")
        theirs = models.get_model(name, weights=entry).eval()
    assert trained.weights == entry.name
    assert trained.classes == tuple(entry.meta.get("categories", ()))
    mine = trained.module.eval().state_dict()
    assert list(mine) == list(theirs.state_dict())
    assert all(torch.equal(mine[name], value) for name, value in theirs.state_dict().items())
    assert repr(trained.module) == repr(theirs)
    settings = [p.requires_grad for p in theirs.parameters()]
    assert [p.requires_grad for p in trained.module.parameters()] == settings
    for example in _examples(name):
        with torch.no_grad():
            assert _equal(trained.module(*example), theirs(*example))


def _examples(name: str) -> list[tuple[Tensor, ...]]:
    if name == "raft_small":
        return [(torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128))]
    if "rcnn" in name or name.startswith("ssd"):
        return []
    side = 80 if name == "inception_v3" else 64
    return [(torch.rand(1, 3, side, side),)]


def _equal(mine: object, theirs: object) -> bool:
    if isinstance(mine, Tensor) and isinstance(theirs, Tensor):
        return torch.equal(mine, theirs)
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return all(_equal(mine[key], theirs[key]) for key in theirs)
    assert isinstance(mine, list)
    assert isinstance(theirs, list)
    return all(map(_equal, mine, theirs))


@pytest.mark.usefixtures("empty_cache")
def test_half_precision_in_the_file_is_loaded_into_the_networks_own() -> None:
    ours = source("resnet18")
    model = ours.build()
    path = cache_weights(ours.default_entry, model)
    torch.save({name: value.half() for name, value in model.state_dict().items()}, path)
    trained = ours.pretrained(None, offline=True).module
    assert {p.dtype for p in trained.parameters()} == {torch.float32}
    assert trained.bn1.num_batches_tracked.dtype == torch.int64


@pytest.mark.usefixtures("empty_cache")
def test_the_parameters_are_the_mapped_file() -> None:
    """Nothing is copied: a parameter lies in the same mapping as its neighbours in the file."""
    ours = source("resnet18")
    cache_weights(ours.default_entry, ours.build())
    trained = ours.pretrained(None, offline=True).module
    assert "resnet18-" in _mapping_of(trained.fc.weight)


def _mapping_of(tensor: Tensor) -> str:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not list a process's mappings")
    for line in maps.read_text().splitlines():
        start, _, end = line.split(" ", 1)[0].partition("-")
        if int(start, 16) <= tensor.data_ptr() < int(end, 16):
            return line
    return ""


def test_real_weights_from_before_torch_1_6(mobilenet_weights: Path) -> None:
    trained = source("mobilenet_v2").pretrained("IMAGENET1K_V1", offline=True)
    theirs = models.mobilenet_v2(weights="IMAGENET1K_V1").eval()
    x = torch.rand(2, 3, 96, 96)
    assert torch.equal(trained.module.eval()(x), theirs(x))
    assert trained.classes[285] == "Egyptian cat"


@pytest.mark.usefixtures("empty_cache")
def test_quantised_weights_load() -> None:
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this torch has no fbgemm")
    ours = source("quantized_shufflenet_v2_x0_5")
    entry = ours.entry("IMAGENET1K_FBGEMM_V1")
    model = source("quantized_shufflenet_v2_x0_5", quantize=True).untrained()
    path = weights_cache.cached_file(entry.url)
    path.parent.mkdir(parents=True)
    torch.save(model.state_dict(), path)
    trained = ours.pretrained("IMAGENET1K_FBGEMM_V1", offline=True)
    x = torch.rand(1, 3, 64, 64)
    with warnings.catch_warnings():
        # torch announces the end of quantised tensors at every use.
        warnings.simplefilter("ignore")
        assert torch.equal(trained.module.eval()(x), model.eval()(x))


@pytest.mark.usefixtures("empty_cache")
def test_weights_for_another_number_of_classes_are_refused() -> None:
    for ours, count in ((source("resnet18"), 10), (source("resnet18", num_classes=10), None)):
        with pytest.raises(WeightsError, match="1000 classes, not 10"):
            ours.pretrained(None, offline=True, num_classes=count)


@pytest.mark.usefixtures("empty_cache")
def test_weights_that_contradict_an_argument_are_refused() -> None:
    ours = source("vit_b_16", image_size=384)
    path = weights_cache.cached_file(ours.default_entry.url)
    path.parent.mkdir(parents=True)
    torch.save({}, path)
    with pytest.raises(WeightsError, match="image_size"):
        ours.pretrained(None, offline=True)


@pytest.mark.usefixtures("offline")
def test_weights_that_cannot_be_had_name_the_ways_out(empty_cache: Path) -> None:
    other = models.ResNet50_Weights.IMAGENET1K_V1
    path = weights_cache.cached_file(other.url)
    path.parent.mkdir(parents=True)
    path.touch()
    for offline, why in ((True, "--offline"), (False, "the test is offline")):
        with pytest.raises(WeightsError) as raised:
            source("resnet50").pretrained(None, offline=offline)
        text = str(raised.value)
        for part in (
            why,
            "IMAGENET1K_V1 (--weights",
            "--checkpoint",
            "--weights none",
            path.parent,
        ):
            assert str(part) in text
    assert list(path.parent.iterdir()) == [path], "a failed download leaves nothing behind"


@pytest.mark.usefixtures("empty_cache")
@pytest.mark.parametrize("content", [b"", b"not weights", b"PK\x03\x04 cut off"])
def test_a_damaged_file_in_the_cache_is_named(content: bytes) -> None:
    path = weights_cache.cached_file(models.ResNet18_Weights.DEFAULT.url)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=f"{path.name} cannot be read"):
        source("resnet18").pretrained(None, offline=True)


@pytest.mark.usefixtures("empty_cache")
def test_a_file_of_another_network_in_the_cache_is_named() -> None:
    path = weights_cache.cached_file(models.ResNet18_Weights.DEFAULT.url)
    path.parent.mkdir(parents=True)
    torch.save({"conv1.weight": torch.zeros(1)}, path)
    with pytest.raises(WeightsError, match=f"{path.name} do not fit resnet18"):
        source("resnet18").pretrained(None, offline=True)
