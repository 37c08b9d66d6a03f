"""Opening a model: from what is typed to a network ready to run, or a clear reason why not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
import torch
from torch import nn
from torchvision import models

from hookscope.errors import ModelError, UsageError, WeightsError
from hookscope.models import weights_cache
from hookscope.models.opening import load_model, open_model, open_structure
from hookscope.models.spec import parse_model_arg, resolve


@pytest.fixture
def net(tmp_path: Path) -> str:
    code = """
        import torch
        from torch import nn
        from torchvision import models

        class Net(nn.Sequential):
            def __init__(self, num_classes=3):
                super().__init__(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LazyLinear(num_classes))

        def noisy():
            net = nn.Dropout(0.5)
            net.register_buffer("noise", torch.rand(4))
            return net

        def pretrained():
            return models.resnet18(weights="DEFAULT")

        def computing():
            net = nn.Linear(3, 3)
            torch.nn.init.orthogonal_(net.weight)
            if (net.weight @ net.weight.T - torch.eye(3)).abs().max() > 1e-3:
                raise ValueError("not orthogonal")
            return net
    """
    (tmp_path / "net.py").write_text(dedent(code))
    return str(tmp_path / "net.py")


def test_random_weights_are_those_of_the_ordinary_constructor_under_the_seed() -> None:
    opened = open_model("resnet18", weights="none", seed=11, device="cpu")
    torch.manual_seed(11)
    theirs = models.resnet18(weights=None).state_dict()
    mine = opened.module.state_dict()
    assert all(torch.equal(mine[name], value) for name, value in theirs.items())
    assert (opened.name, opened.file_name, opened.kind) == ("resnet18", "resnet18", "torchvision")
    assert (opened.weights, len(opened.labels), opened.account) == ("none", 0, None)
    assert not any(module.training for module in opened.module.modules())


def test_the_seed_makes_the_digest() -> None:
    digests = [open_model("squeezenet1_1", weights="none", seed=s).digest for s in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_the_random_state_is_left_alone(net: str) -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    open_model("squeezenet1_1", weights="none")
    open_model(f"{net}:noisy")
    open_structure("squeezenet1_1")
    assert torch.equal(torch.rand(3), expected)


def test_a_factory_is_seeded_and_in_eval_mode(net: str) -> None:
    opened = open_model(f"{net}:noisy", seed=4)
    torch.manual_seed(4)
    assert torch.equal(opened.module.noise, torch.rand(4))
    assert not opened.module.training
    assert (opened.name, opened.kind, opened.weights) == ("noisy", "factory", None)


def test_real_weights(mobilenet_weights: Path) -> None:
    opened = open_model("mobilenet_v2", weights="IMAGENET1K_V1", offline=True)
    assert opened.weights == "IMAGENET1K_V1"
    assert opened.labels.find("Egyptian", 1000) == 285
    assert opened.preprocessing.input_size == (224, 224)
    assert opened.digest == open_model("mobilenet_v2", weights="imagenet1k_v1").digest


def test_labels_from_a_file_go_before_those_of_the_weights(
    tmp_path: Path, mobilenet_weights: Path
) -> None:
    (tmp_path / "names.txt").write_text("one\ntwo\n")
    opened = open_model(
        "mobilenet_v2", weights="IMAGENET1K_V1", labels=tmp_path / "names.txt", offline=True
    )
    assert opened.labels.names == ("one", "two")


def test_another_entry_is_never_substituted(mobilenet_weights: Path) -> None:
    if weights_cache.cached_file(models.MobileNet_V2_Weights.DEFAULT.url).exists():
        pytest.skip("this machine has the default weights too")
    with pytest.raises(WeightsError, match="IMAGENET1K_V2") as raised:
        open_model("mobilenet_v2", offline=True)
    assert "--weights IMAGENET1K_V1" in str(raised.value)


def test_a_structure_needs_no_weights_no_network_no_memory() -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    opened = open_structure("vit_l_16")
    grown = process.memory_info().rss - before
    assert grown < sum(p.numel() * 4 for p in opened.module.parameters()) / 10
    assert opened.digest == ""


def test_a_structure_has_the_shape_of_the_weights_asked_for() -> None:
    assert open_structure("vit_h_14").preprocessing.input_size == (518, 518)
    linear = open_structure("vit_h_14", weights="IMAGENET1K_SWAG_LINEAR_V1")
    assert linear.preprocessing.input_size == (224, 224)
    bare = open_structure("vit_h_14", weights="none")
    assert (bare.module.image_size, bare.preprocessing.input_size) == (224, (224, 224))


def test_a_structure_of_a_factory_that_would_download(net: str) -> None:
    opened = open_structure(f"{net}:pretrained")
    assert isinstance(opened.module, models.ResNet)


def test_a_factory_that_computes_with_its_initial_values(net: str) -> None:
    assert isinstance(open_structure(f"{net}:computing").module, nn.Linear)


def test_offline_holds_for_factories_too(
    net: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(ModelError, match="--offline") as raised:
        open_model(f"{net}:pretrained", offline=True)
    assert "net.py" in str(raised.value)


def test_num_classes(net: str) -> None:
    assert open_model("squeezenet1_1", weights="none", num_classes=6).module.num_classes == 6
    assert open_model(f"{net}:Net", num_classes=6).module[2].out_features == 6
    with pytest.raises(UsageError, match="noisy has no argument num_classes"):
        open_model(f"{net}:noisy", num_classes=6)
    with pytest.raises(WeightsError, match="not 6"):
        open_model("resnet18", num_classes=6, offline=True)
    with pytest.raises(UsageError, match="not a number"):
        open_model("resnet18", num_classes=0)


def test_weights_and_checkpoint_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exclude"):
        open_model("resnet18", weights="DEFAULT", checkpoint=tmp_path / "best.pth")


def test_a_checkpoint_gives_weights_names_and_account(tmp_path: Path) -> None:
    model = models.squeezenet1_1(num_classes=3).eval()
    torch.save(
        {"state_dict": model.state_dict(), "classes": ["a", "b", "c"]}, tmp_path / "best.pth"
    )
    opened = open_model("squeezenet1_1", checkpoint=tmp_path / "best.pth")
    x = torch.rand(1, 3, 64, 64)
    assert torch.equal(opened.module(x), model(x))
    assert (opened.weights, opened.file_name) == ("best.pth", "squeezenet1_1-best")
    assert opened.labels.names == ("a", "b", "c")
    assert opened.account
    assert (
        open_structure("squeezenet1_1", checkpoint=tmp_path / "best.pth").account == opened.account
    )


def test_a_lazy_network_is_opened(net: str) -> None:
    assert open_model(f"{net}:Net").digest != open_model(f"{net}:noisy").digest


def test_load_model_is_the_module_of_open_model() -> None:
    module = load_model("squeezenet1_1", weights="none", seed=2)
    opened = open_model("squeezenet1_1", weights="none", seed=2)
    mine, theirs = module.state_dict(), opened.module.state_dict()
    assert all(torch.equal(mine[name], value) for name, value in theirs.items())
    assert not module.training


@pytest.mark.parametrize(
    ("spec", "kind"),
    [("resnet18", "torchvision"), ("timm:resnet18", "timm"), ("torch.nn:Identity", "factory")],
)
def test_resolve(spec: str, kind: str) -> None:
    assert resolve(spec).kind == kind


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (" ", "empty"),
        ("resnt18", "resnet18"),
        ("nets/model.pt2", "no file nets/model.pt2"),
        ("model.pt2", "no file model.pt2"),
        (".", "a folder"),
    ],
)
def test_resolve_refuses(spec: str, message: str) -> None:
    with pytest.raises((ModelError, UsageError), match=message):
        resolve(spec)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", 1), ("a=[1, 2]", [1, 2]), ("a=true", True), ("a=relu", "relu"), ("a=x=y", "x=y")],
)
def test_model_arguments_are_json_or_text(text: str, value: object) -> None:
    assert parse_model_arg(text) == ("a", value)


@pytest.mark.parametrize("text", ["", "a", "=1", "a b=1"])
def test_a_model_argument_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_model_arg(text)


def test_a_factory_needs_no_torchvision(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\ndef make(): return nn.Conv2d(3, 2, 3)")
    code = (
        "import sys; from hookscope.models.opening import open_model; "
        f"open_model({str(tmp_path / 'net.py') + ':make'!r}); "
        "assert 'torchvision' not in sys.modules and 'timm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
