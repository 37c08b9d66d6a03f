"""Attention weights sum to one, and multiplied out they are what the module returned."""

from __future__ import annotations

from typing import Any

import pytest
import timm
import torch
from hook_networks import hooks_on, small_swin, small_vit
from torch import Tensor, nn
from torch.nn import functional
from torchvision import models

from hookscope import LayerNotFoundError
from hookscope.errors import ModelError
from hookscope.hooks.activations import ActivationCapture
from hookscope.hooks.attention import AttentionCapture
from hookscope.hooks.attention_weights import fused_weights
from hookscope.hooks.rollout import rollout

VIT_LAYERS = [f"encoder.layers.encoder_layer_{i}.self_attention" for i in range(2)]


def captured(model: nn.Module, x: Tensor, *layers: str) -> tuple[AttentionCapture, Tensor]:
    before = hooks_on(model)
    with torch.no_grad(), AttentionCapture(model, layers or "*") as capture:
        output = model(x)
    assert hooks_on(model) == before
    assert not any("forward" in module.__dict__ for module in model.modules())
    for result in capture.results:
        sums = result.tensor.sum(-1)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-5)
    return capture, output


@pytest.mark.parametrize("gradients", [True, False])
def test_weights_of_vit_multiplied_out_are_the_output_of_the_module(gradients: bool) -> None:
    torch.manual_seed(0)
    model = small_vit().eval()
    x = torch.randn(3, 3, 32, 32)
    plain = model(x)
    with (
        torch.set_grad_enabled(gradients),
        AttentionCapture(model) as capture,
        ActivationCapture(model, VIT_LAYERS, what="input") as inputs,
        ActivationCapture(model, VIT_LAYERS) as outputs,
    ):
        assert torch.allclose(model(x), plain, atol=1e-5)
    assert list(capture) == VIT_LAYERS
    for name in VIT_LAYERS:
        assert f"{name}[1]" not in outputs, "the model asked for no weights, and gets none"
        module = model.get_submodule(name)
        weights = capture[name]
        assert weights.shape == (3, 4, 17, 17)
        value = inputs[f"{name}[2]"] @ module.in_proj_weight[64:].T + module.in_proj_bias[64:]
        mixed = weights @ value.unflatten(-1, (4, 8)).transpose(1, 2)
        assert torch.allclose(
            module.out_proj(mixed.transpose(1, 2).flatten(2)), outputs[f"{name}[0]"], atol=1e-5
        )


def test_callers_of_multihead_attention_get_what_they_asked_for() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    model = nn.ModuleDict({"attention": module})
    x = torch.randn(2, 5, 8)
    asking: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x, x, x), {}),
        ((x, x), {"value": x, "need_weights": False}),
        ((x, x, x, None, True, None, False), {}),
        ((x, x, x), {"average_attn_weights": False}),
        ((x, x, x, None, False), {"attn_mask": torch.ones(5, 5).triu(1).bool()}),
        ((x[0], x[0], x[0]), {}),
    ]
    for args, kwargs in asking:
        result, weights = module(*args, **kwargs)
        with AttentionCapture(model) as capture:
            ours, our_weights = module(*args, **kwargs)
        assert torch.allclose(ours, result, atol=1e-6)
        assert (our_weights is None) == (weights is None)
        if weights is not None:
            assert torch.allclose(our_weights, weights, atol=1e-6)
        assert capture["attention"].ndim == 4
    with AttentionCapture(model) as capture, pytest.raises((RuntimeError, AssertionError)):
        module(x, x[:, :, :3], x)
    assert not capture._asked


def windows_of(x: Tensor, size: int) -> Tensor:
    """batch x H x W x C -> batch x windows x tokens x C."""
    high, wide = x.shape[1] // size, x.shape[2] // size
    x = x.unflatten(1, (high, size)).unflatten(3, (wide, size))
    return x.transpose(2, 3).flatten(1, 2).flatten(2, 3)


def from_windows(windows: Tensor, size: int, height: int) -> Tensor:
    high = height // size
    x = windows.unflatten(1, (high, -1)).unflatten(3, (size, size))
    return x.transpose(2, 3).flatten(1, 2).flatten(2, 3)


def test_weights_of_swin_multiplied_out_are_the_output_of_the_module() -> None:
    torch.manual_seed(0)
    model = small_swin().eval()
    x = torch.randn(2, 3, 32, 32)
    plain = model(x)
    layers = ["features.1.0.attn", "features.1.1.attn", "features.3.0.attn"]
    with (
        ActivationCapture(model, layers, what="input") as inputs,
        ActivationCapture(model, layers) as outputs,
    ):
        capture, output = captured(model, x)
    assert torch.equal(output, plain), "looking on changes no bit"
    assert [tuple(capture[name].shape) for name in layers] == [
        (2, 4, 2, 16, 16),
        (2, 4, 2, 16, 16),
        (2, 4, 16, 16),
    ]
    for name in layers:
        module = model.get_submodule(name)
        shift, size = module.shift_size[0], 4
        if name.startswith("features.3"):
            shift = 0  # one window covers the whole map
        given = inputs[name].roll((-shift, -shift), (1, 2))
        width = given.shape[-1]
        value = given @ module.qkv.weight[2 * width :].T + module.qkv.bias[2 * width :]
        tokens = windows_of(value, size)
        heads = module.num_heads
        weights = capture[name].view(2, -1, heads, 16, 16)
        mixed = weights @ tokens.unflatten(-1, (heads, -1)).transpose(2, 3)
        mixed = module.proj(mixed.transpose(2, 3).flatten(3))
        again = from_windows(mixed, size, given.shape[1]).roll((shift, shift), (1, 2))
        assert torch.allclose(again, outputs[name], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "size", "arguments"),
    [
        ("vit_tiny_patch16_224", 32, {"img_size": 32, "depth": 2}),
        (
            "swin_tiny_patch4_window7_224",
            32,
            {"img_size": 32, "window_size": 4, "depths": (2, 1, 1, 1)},
        ),
    ],
)
def test_fused_attention_of_timm_equals_its_unfused_weights(
    name: str, size: int, arguments: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, **arguments).eval()
    x = torch.randn(2, 3, size, size)
    attention = {n: m for n, m in model.named_modules() if hasattr(m, "fused_attn")}
    for module in attention.values():
        module.fused_attn = True
    with torch.no_grad():
        plain = model(x)
    capture, output = captured(model, x)
    assert torch.equal(output, plain)
    assert list(capture) == list(attention)
    seen: dict[str, Tensor] = {}
    for layer, module in attention.items():
        module.fused_attn = False
        module.attn_drop.register_forward_pre_hook(
            lambda m, args, layer=layer: seen.__setitem__(layer, args[0].clone())
        )
    with torch.no_grad():
        model(x)
    for layer, weights in seen.items():
        assert torch.allclose(capture[layer].view_as(weights), weights, atol=1e-5)


def test_maxvit_attention_is_that_of_the_innermost_module() -> None:
    model = models.MaxVit(
        (32, 32),
        8,
        4,
        block_channels=[8, 16],
        block_layers=[1, 1],
        head_dim=4,
        stochastic_depth_prob=0.0,
        num_classes=3,
    ).eval()
    capture, _ = captured(model, torch.randn(1, 3, 32, 32))
    assert len(capture) == 4
    assert all(name.endswith("attn_layer.1") for name in capture)


def test_an_encoder_with_a_fast_path_takes_the_slow_one() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    capture, _ = captured(model, torch.randn(2, 5, 8))
    assert list(capture) == ["layers.0.self_attn", "layers.1.self_attn"]


def test_the_attention_of_an_exported_program() -> None:
    model = small_vit().eval()
    x = torch.randn(2, 3, 32, 32)
    program = torch.export.unflatten(torch.export.export(model, (x,)))
    exported, _ = captured(program, x)
    original, _ = captured(model, x)
    assert list(exported) == list(original)
    for name in original:
        assert torch.allclose(exported[name], original[name], atol=1e-5)


@pytest.mark.parametrize("mask", [None, "bool", "float", "causal"])
def test_weights_beside_fused_attention(mask: str | None) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, 6, 8, dtype=torch.double) for _ in range(3))
    arguments: dict[str, Any] = {
        None: {},
        "bool": {"attn_mask": torch.ones(6, 6).tril(1).bool()},
        "float": {"attn_mask": torch.randn(6, 6, dtype=torch.double), "scale": 0.3},
        "causal": {"is_causal": True},
    }[mask]
    weights = fused_weights(query, key, value, **arguments)
    expected = functional.scaled_dot_product_attention(query, key, value, **arguments)
    assert torch.allclose(weights @ value, expected)
    shared = fused_weights(query, key[:, :2], value[:, :2], enable_gqa=True, **arguments)
    expected = functional.scaled_dot_product_attention(
        query, key[:, :2], value[:, :2], enable_gqa=True, **arguments
    )
    assert torch.allclose(shared @ value[:, :2].repeat_interleave(2, 1), expected)
    assert fused_weights(query.bfloat16(), key.bfloat16(), value).dtype is torch.float32


def test_rollout_multiplies_the_layers_out() -> None:
    torch.manual_seed(0)
    model = small_vit().eval()
    capture, _ = captured(model, torch.randn(2, 3, 32, 32))
    flow = capture.rollout()
    first, second = (capture[name].mean(1) for name in VIT_LAYERS)
    identity = torch.eye(17)
    assert torch.allclose(flow, (second + identity) / 2 @ ((first + identity) / 2), atol=1e-6)
    assert torch.allclose(flow.sum(-1), torch.ones(2, 17), atol=1e-5)
    assert torch.equal(rollout([capture[VIT_LAYERS[0]]], residual=1.0), identity.expand(2, 17, 17))
    with pytest.raises(ModelError, match="among the same tokens"):
        captured(small_swin().eval(), torch.randn(1, 3, 32, 32))[0].rollout()
    with pytest.raises(ModelError, match="no attention weights"):
        rollout([])


def test_a_container_stands_for_the_attention_in_it() -> None:
    model = small_vit().eval()
    x = torch.randn(1, 3, 32, 32)
    capture, _ = captured(model, x, "encoder.layers.encoder_layer_1")
    assert list(capture) == VIT_LAYERS[1:]
    with pytest.raises(LayerNotFoundError, match="encoder_layer_0"):
        AttentionCapture(model, "conv_proj")
    with pytest.raises(LayerNotFoundError, match="ResNet has no attention"):
        AttentionCapture(models.resnet18())
    assert hooks_on(model) == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_neither_hook_nor_context(error: type[BaseException]) -> None:
    model = small_swin().eval()
    x = torch.randn(1, 3, 32, 32)

    def fail(module: nn.Module, args: Any) -> None:
        raise error("inside attention")

    handle = model.features[1][0].attn.register_forward_pre_hook(fail)
    model.features[1][0].attn.forward = model.features[1][0].attn.forward
    with pytest.raises(error), AttentionCapture(model):
        model(x)
    handle.remove()
    del model.features[1][0].attn.forward
    assert hooks_on(model) == 0
    assert torch.overrides._len_torch_function_stack() == 0


def test_overlapping_captures_let_go_in_any_order() -> None:
    model = small_swin().eval()
    x = torch.randn(1, 3, 32, 32)
    first, second = AttentionCapture(model), AttentionCapture(model)
    model(x)
    assert len(first) == len(second) == 4
    first.remove()
    first.clear()
    model(x)
    assert len(first) == 0
    assert len(second) == 4
    second.remove()
    second.clear()
    model(x)
    assert len(second) == 0
