"""Every method against the paper's formula written out in float64, and what must hold for all."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hookscope.maps import cam


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    activations = torch.randn(3, 6, 4, 7, generator=generator, dtype=torch.float64)
    gradients = torch.randn(3, 6, 4, 7, generator=generator, dtype=torch.float64)
    gradients[0, 2] = 0
    return activations, gradients


def weighted(a: np.ndarray, weights: list[float]) -> np.ndarray:
    return np.maximum(sum(w * channel for w, channel in zip(weights, a, strict=True)), 0)


def plus_plus_weight(a: np.ndarray, g: np.ndarray) -> float:
    # The paper's unshortened alpha: g^2 / (2 g^2 + sum(A) g^3), pixel by pixel.
    total = 0.0
    for gradient in g.ravel():
        if gradient != 0:
            alpha = gradient**2 / (2 * gradient**2 + a.sum() * gradient**3)
            total += alpha * max(gradient, 0)
    return total


CLOSED_FORMS = {
    "gradcam": lambda a, g: weighted(a, [gk.sum() / gk.size for gk in g]),
    "gradcam++": lambda a, g: weighted(
        a, [plus_plus_weight(ak, gk) for ak, gk in zip(a, g, strict=True)]
    ),
    "hirescam": lambda a, g: np.maximum((a * g).sum(0), 0),
    "xgradcam": lambda a, g: weighted(
        a, [(ak * gk).sum() / (ak.sum() + 1e-7) for ak, gk in zip(a, g, strict=True)]
    ),
    "layercam": lambda a, g: np.maximum((np.maximum(g, 0) * a).sum(0), 0),
}


@pytest.mark.parametrize("method", CLOSED_FORMS)
def test_closed_form_in_float64(method, tensors):
    activations, gradients = tensors
    ours = cam.raw_map(method, activations, gradients)
    assert ours.dtype == torch.float64
    for picture in range(len(activations)):
        expected = CLOSED_FORMS[method](activations[picture].numpy(), gradients[picture].numpy())
        np.testing.assert_allclose(ours[picture].numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 5, 6, 3), (2, 40, 3, 4)], ids=["tall", "wide"])
def test_principal_component_is_the_svd(shape):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = cam.principal_component(values)
    for picture, projected in zip(values, ours, strict=True):
        matrix = picture.reshape(shape[1], -1).T.numpy()
        matrix = matrix - matrix.mean(0)
        right = np.linalg.svd(matrix)[2][0]
        expected = (matrix @ right).reshape(shape[2:])
        likeness = (expected.ravel() * matrix.mean(1)).sum()
        np.testing.assert_allclose(projected.numpy(), expected * np.sign(likeness), atol=1e-9)


def test_eigencam_points_where_the_activations_are_high():
    values = torch.rand(1, 8, 5, 5, generator=torch.Generator().manual_seed(1)) * 0.01
    values[0, :, 3, 1] += 4
    heat = cam.raw_map("eigencam", values, values)
    assert heat.flatten().argmax() == 3 * 5 + 1


def test_eigengradcam_is_eigencam_of_the_product(tensors):
    activations, gradients = tensors
    product = activations * gradients
    torch.testing.assert_close(
        cam.raw_map("eigengradcam", activations, gradients),
        cam.raw_map("eigencam", product, product),
    )


@pytest.mark.parametrize("method", cam.METHODS)
class TestEveryMethod:
    def test_is_not_negative_and_has_the_layer_size(self, method, tensors):
        heat = cam.raw_map(method, *tensors)
        assert heat.shape == (3, 4, 7)
        assert (heat >= 0).all()
        assert (heat > 0).any()

    def test_batch_equals_its_members(self, method, tensors):
        activations, gradients = tensors
        together = cam.raw_map(method, activations, gradients)
        alone = [
            cam.raw_map(method, activations[n : n + 1], gradients[n : n + 1]) for n in range(3)
        ]
        torch.testing.assert_close(together, torch.cat(alone))

    def test_does_not_change_its_arguments(self, method, tensors):
        before = [tensor.clone() for tensor in tensors]
        cam.raw_map(method, *tensors)
        assert all(torch.equal(*pair) for pair in zip(before, tensors, strict=True))

    def test_mirrors_with_its_arguments(self, method, tensors):
        activations, gradients = tensors
        mirrored = cam.raw_map(method, activations.flip(-1), gradients.flip(-1))
        torch.testing.assert_close(mirrored.flip(-1), cam.raw_map(method, activations, gradients))

    def test_half_precision_is_computed_in_float32(self, method, tensors):
        activations, gradients = (tensor.to(torch.bfloat16) for tensor in tensors)
        heat = cam.raw_map(method, activations, gradients)
        assert heat.dtype == torch.float32
        torch.testing.assert_close(
            heat, cam.raw_map(method, activations.float(), gradients.float())
        )

    def test_a_dead_layer_gives_zeros(self, method):
        nothing = torch.zeros(1, 3, 4, 4)
        assert torch.equal(cam.raw_map(method, nothing, nothing), torch.zeros(1, 4, 4))

    def test_broken_picture_leaves_the_others_alone(self, method, tensors):
        activations, gradients = (tensor.clone() for tensor in tensors)
        sound = cam.raw_map(method, activations, gradients)
        activations[1, 0, 0, 0] = float("nan")
        heat = cam.raw_map(method, activations, gradients)
        assert not heat[1].isfinite().all()
        torch.testing.assert_close(heat[[0, 2]], sound[[0, 2]])


def test_plus_plus_has_no_nan_where_the_denominator_is_zero():
    activations = torch.full((1, 1, 1, 2), -1.0)
    gradients = torch.ones(1, 1, 1, 2)  # 2 + sum(A) g = 0
    assert cam.raw_map("gradcam++", activations, gradients).isfinite().all()
