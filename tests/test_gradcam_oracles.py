"""Raw maps equal those of independent libraries, and of the formulas on autograd's own tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam
from torch import nn
from torchvision import models

from hookscope.gradcam import gradcam
from hookscope.layout import Layout, channels_first
from hookscope.maps import cam

SQUARE, WIDE = (64, 64), (64, 96)


def pictures(size: tuple[int, int], count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, *size, generator=torch.Generator().manual_seed(4))


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    torch.manual_seed(0)
    return models.resnet18().eval()


@pytest.fixture(scope="module")
def vgg() -> nn.Module:
    """In-place ReLU after every convolution, and a head that is not pooled."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 8), (8, 12), (12, 16)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d((3, 4)), nn.Flatten(), nn.Linear(16 * 12, 10))
    return nn.Sequential(nn.Sequential(*layers), head).eval()


@pytest.fixture(scope="module")
def swin() -> nn.Module:
    torch.manual_seed(0)
    return models.SwinTransformer([2, 2], 24, [2, 2], [2, 4], [4, 4], num_classes=10).eval()


@pytest.fixture(scope="module")
def vit() -> nn.Module:
    torch.manual_seed(0)
    model = models.VisionTransformer(32, 8, 2, 2, 24, 48, num_classes=10).eval()
    nn.init.normal_(model.heads.head.weight)  # torchvision's is zero, and so every gradient
    return model


@pytest.mark.parametrize("size", [SQUARE, WIDE], ids=["square", "wide"])
@pytest.mark.parametrize(
    "layer", ["layer4", "layer3.1.conv2", "layer4.1.bn2", "layer1.0.bn1", "conv1", "bn1"]
)
def test_captum_at_ordinary_and_overwritten_layers(resnet, layer, size):
    x = pictures(size)
    target = torch.tensor([3, 907])
    expected = LayerGradCam(resnet, resnet.get_submodule(layer)).attribute(
        x, target=target, relu_attributions=True
    )
    found = gradcam(resnet, x, layer, target)
    torch.testing.assert_close(found, expected[:, 0].detach(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("layer", [f"0.{i}" for i in range(9)])
def test_captum_where_every_relu_is_in_place(vgg, layer):
    x = pictures(WIDE)
    expected = LayerGradCam(vgg, vgg.get_submodule(layer)).attribute(
        x, target=7, relu_attributions=True
    )
    found = gradcam(vgg, x, layer, 7)
    torch.testing.assert_close(found, expected[:, 0].detach(), rtol=1e-4, atol=1e-7)


def autograd_tensors(
    model: nn.Module, x: torch.Tensor, layer: str, target: int, layout: Layout
) -> tuple[torch.Tensor, torch.Tensor]:
    """A and g in float64 by a plain hook that keeps the graph; N x C x h x w."""
    kept: list[torch.Tensor] = []

    def keep(module: nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        kept.append(output)
        return output.clone()

    handle = model.get_submodule(layer).register_forward_hook(keep)
    score = model(x)[:, target].sum()
    handle.remove()
    (gradient,) = torch.autograd.grad(score, kept[-1])
    size = (x.shape[2], x.shape[3])
    return (
        channels_first(kept[-1].detach(), layout, size),
        channels_first(gradient, layout, size),
    )


GRADIENT_METHODS = ("gradcam", "gradcam++", "hirescam", "xgradcam", "layercam", "eigengradcam")


@pytest.mark.parametrize("method", GRADIENT_METHODS)
@pytest.mark.parametrize(
    ("name", "layer", "layout", "size"),
    [
        ("vgg", "0.6", Layout("NCHW"), WIDE),
        ("vgg", "0.7", Layout("NCHW"), SQUARE),
        ("swin", "features.1", Layout("NHWC"), WIDE),
        ("swin", "norm", Layout("NHWC"), SQUARE),
        ("vit", "encoder.layers.encoder_layer_1.ln_1", Layout("tokens", 1, (4, 4)), (32, 32)),
        ("vit", "encoder.layers.encoder_layer_0", Layout("tokens", 1, (4, 4)), (32, 32)),
    ],
)
def test_methods_in_every_layout_on_plain_hooks_in_float64(
    request, method, name, layer, layout, size
):
    model = request.getfixturevalue(name).double()
    x = pictures(size).double()
    found = gradcam(model, x, layer, 5, method)
    expected = cam.raw_map(method, *autograd_tensors(model, x, layer, 5, layout))
    model.float()
    assert found.dtype == torch.float64
    assert found.max() > 0
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)


def test_tokens_that_form_a_grid_that_is_not_square():
    class Patches(nn.Module):
        """A class token and 4 x 6 patches, mixed by attention."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Conv2d(3, 8, 8, 8)
            self.token = nn.Parameter(torch.randn(1, 1, 8))
            self.mix = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.norm = nn.LayerNorm(8)
            self.head = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1)
            return self.head(self.mix(self.norm(tokens))[:, 0])

    torch.manual_seed(0)
    model = Patches().double().eval()
    x = pictures((32, 48)).double()
    found = gradcam(model, x, "norm", 1)
    assert found.shape == (2, 4, 6)
    layout = Layout("tokens", 1, (4, 6))
    expected = cam.raw_map("gradcam", *autograd_tensors(model, x, "norm", 1, layout))
    torch.testing.assert_close(found, expected)


def peers_map(name: str, model: nn.Module, layer: str, x: torch.Tensor, target: int) -> np.ndarray:
    """pytorch-grad-cam's map of one picture and class, upsampled and scaled as it does."""
    import pytorch_grad_cam
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    method = getattr(pytorch_grad_cam, name)
    with method(model=model, target_layers=[model.get_submodule(layer)]) as explainer:
        return explainer(x, [ClassifierOutputTarget(target)])[0]


def as_peers(heatmap: torch.Tensor, x: torch.Tensor) -> np.ndarray:
    """Our raw map N x h x w, scaled, upsampled and scaled again by pytorch-grad-cam's function."""
    from pytorch_grad_cam.utils.image import scale_cam_image

    return scale_cam_image(scale_cam_image(heatmap.numpy(), (x.shape[3], x.shape[2])))[0]


def test_eigencam_of_pytorch_grad_cam(resnet):
    """Equal up to the sign, which the other library leaves as the SVD gives it."""
    from pytorch_grad_cam.utils.svd_on_activations import get_2d_projection

    x = pictures(WIDE)
    kept: list[torch.Tensor] = []
    handle = resnet.layer3.register_forward_hook(lambda m, i, o: kept.append(o.detach().clone()))
    resnet(x)
    handle.remove()
    theirs = get_2d_projection(kept[0].numpy())
    ours = cam.principal_component(kept[0]).numpy()
    for one, other in zip(ours, theirs, strict=True):
        sign = np.sign((one * other).sum())
        np.testing.assert_allclose(one, sign * other, atol=1e-4 * np.abs(other).max())
    found = gradcam(resnet, x, "layer3", method="eigencam").numpy()
    np.testing.assert_allclose(found, np.maximum(ours, 0), atol=1e-5)


def test_scorecam_of_pytorch_grad_cam(vgg):
    """Where the map has the picture's size: elsewhere the other library upsamples its masks with
    corners aligned, which shifts them by up to half a cell."""
    x = pictures((24, 32), count=1)
    found = gradcam(vgg, x, "0.1", 4, "scorecam")
    np.testing.assert_allclose(
        as_peers(found, x), peers_map("ScoreCAM", vgg, "0.1", x, 4), atol=2e-5
    )


@pytest.mark.parametrize("layer", ["0.1", "0.4", "0.7"])
def test_ablationcam_of_pytorch_grad_cam(vgg, layer):
    """At outputs of a ReLU and for a positive score: elsewhere the other library ablates with minus
    ten million instead of zero, and divides by a score with its sign."""
    x = pictures((24, 32), count=1)
    with torch.no_grad():
        score, target = vgg(x)[0].max(0)
    assert score > 0
    found = gradcam(vgg, x, layer, int(target), "ablationcam")
    theirs = peers_map("AblationCAM", vgg, layer, x, int(target))
    np.testing.assert_allclose(as_peers(found, x), theirs, atol=1e-4)


def test_ablationcam_by_hand(vgg):
    """(y - y without k) / abs(y), one whole pass a channel, on a score of either sign."""
    x = pictures((24, 32), count=2)
    for target in range(3):
        found = gradcam(vgg, x, "0.4", target, "ablationcam")
        for n in range(2):
            clean = vgg(x[n : n + 1])[0, target]
            maps = vgg[0][:5](x[n : n + 1])
            expected = torch.zeros(maps.shape[2:])
            for k in range(maps.shape[1]):
                lacking = maps.clone()
                lacking[:, k] = 0
                without = vgg[1](vgg[0][5:](lacking))[0, target]
                expected += (clean - without) / clean.abs() * maps[0, k]
            torch.testing.assert_close(found[n], expected.relu().detach(), rtol=1e-3, atol=1e-5)


def test_scorecam_by_hand(vgg):
    x = pictures((24, 32), count=2)
    found = gradcam(vgg, x, "0.5", 3, "scorecam", batch_size=5)
    for n in range(2):
        maps = vgg[0][:6](x[n : n + 1])
        scores = []
        for k in range(maps.shape[1]):
            mask = nn.functional.interpolate(maps[:, k : k + 1], (24, 32), mode="bilinear")
            mask = (mask - mask.min()) / (mask.max() - mask.min())
            scores.append(vgg(x[n : n + 1] * mask)[0, 3])
        weights = torch.stack(scores).softmax(0)
        expected = (weights[:, None, None] * maps[0]).sum(0).relu()
        torch.testing.assert_close(found[n], expected.detach(), rtol=1e-4, atol=1e-6)
