"""Class-activation maps: what each method makes of a layer's activations and gradients.

Every method is a pure function of the activations A and of the gradients g = d(logit)/dA, both
N x C x h x w, one class per picture, and gives raw maps N x h x w after the method's ReLU. Half
precision is computed in float32, float64 stays. Methods that need no gradients ignore them;
those that need more forward passes (scorecam, ablationcam) only weigh: see ``perturbation``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import torch
from torch import Tensor

from hookscope.errors import UsageError, did_you_mean

Method = Callable[[Tensor, Tensor], Tensor]


def weighted(activations: Tensor, weights: Tensor) -> Tensor:
    """relu(sum_k w_k A_k) for one weight a channel (N x C)."""
    return torch.einsum("nc,nchw->nhw", weights, activations).relu_()


def gradcam(activations: Tensor, gradients: Tensor) -> Tensor:
    """relu(sum_k mean(g_k) A_k). Selvaraju et al. 2017, Grad-CAM, equations 1 and 2."""
    return weighted(activations, gradients.mean((2, 3)))


def gradcam_plus_plus(activations: Tensor, gradients: Tensor) -> Tensor:
    """w_k = sum alpha relu(g), alpha = 1 / (2 + g sum A_k) where g is not zero.

    Chattopadhay et al. 2018, Grad-CAM++, equation 19 for an exponential of the score, shortened
    by g squared; where the denominator is zero, alpha is taken as zero.
    """
    denominator = (gradients * activations.sum((2, 3), keepdim=True)).add_(2)
    terms = gradients.relu().div_(denominator).masked_fill_(denominator == 0, 0)
    return weighted(activations, terms.sum((2, 3)))


def hirescam(activations: Tensor, gradients: Tensor) -> Tensor:
    """relu(sum_k g_k A_k), element by element. Draelos and Carin 2020, HiResCAM."""
    return (gradients * activations).sum(1).relu_()


def xgradcam(activations: Tensor, gradients: Tensor) -> Tensor:
    """w_k = sum(g_k A_k) / (sum A_k + 1e-7). Fu et al. 2020, XGrad-CAM, equation 8."""
    weights = (gradients * activations).sum((2, 3)) / (activations.sum((2, 3)) + 1e-7)
    return weighted(activations, weights)


def layercam(activations: Tensor, gradients: Tensor) -> Tensor:
    """relu(sum_k relu(g_k) A_k), element by element. Jiang et al. 2021, LayerCAM, equation 6."""
    return (gradients.relu() * activations).sum(1).relu_()


def eigencam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Positive part of the first principal component. Muhammad and Yeasin 2020, Eigen-CAM."""
    return principal_component(activations).relu_()


def eigengradcam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Eigen-CAM of g times A, which asks for a class."""
    return principal_component(gradients * activations).relu_()


def principal_component(values: Tensor) -> Tensor:
    """Projection on the first right singular vector of the (h w) x C matrix, columns centred.

    N x h x w. The sign, which a singular vector leaves open, is such that the projection
    correlates with the mean over the channels. Not finite where the values are not.
    """
    samples, _, height, width = values.shape
    matrix = values.flatten(2).transpose(1, 2)
    matrix = matrix - matrix.mean(1, keepdim=True)
    wide = matrix.shape[1] < matrix.shape[2]
    # The eigenvectors of the smaller Gram matrix are found many times faster than an SVD.
    gram = matrix @ matrix.mT if wide else matrix.mT @ matrix
    value, vector, finite = _leading_pair(gram)
    if wide:
        projection = vector * value.clamp(min=0).sqrt().unsqueeze(1)
    else:
        projection = (matrix @ vector.unsqueeze(2)).squeeze(2)
    likeness = (projection * matrix.mean(2)).sum(1, keepdim=True)
    projection = torch.where(likeness < 0, -projection, projection)
    projection = projection.masked_fill(~finite.unsqueeze(1), torch.nan)
    return projection.reshape(samples, height, width)


def _leading_pair(gram: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest eigenvalue of each matrix, its eigenvector, and whether all of it is finite."""
    finite = gram.isfinite().all(2).all(1)
    # LAPACK raises at a NaN, which would take the other pictures of the batch along.
    safe = gram.masked_fill(~finite[:, None, None], 0)
    # Not every accelerator has float64 or an eigenvalue solver; the matrix is small enough to move.
    place = safe if safe.device.type in ("cpu", "cuda") else safe.cpu()
    values, vectors = torch.linalg.eigh(place.double())
    return values[:, -1].to(gram), vectors[:, :, -1].to(gram), finite


METHODS: MappingProxyType[str, Method] = MappingProxyType(
    {
        "gradcam": gradcam,
        "gradcam++": gradcam_plus_plus,
        "hirescam": hirescam,
        "xgradcam": xgradcam,
        "layercam": layercam,
        "eigencam": eigencam,
        "eigengradcam": eigengradcam,
    }
)

PERTURBING = ("scorecam", "ablationcam")
"""Methods that run the network again for every channel instead of backwards."""

NAMES: tuple[str, ...] = (*METHODS, *PERTURBING)
"""Every method, in the order in which help texts name them."""

WITHOUT_GRADIENTS = frozenset({"eigencam", *PERTURBING})
"""Methods that need no backward pass; eigencam is the same map for every class."""


def check_method(name: str) -> None:
    """Raises ``UsageError`` for a method that is not there, with the three closest."""
    if name not in NAMES:
        raise UsageError(f"unknown method {name!r}", did_you_mean(name, NAMES))


def raw_map(method: str, activations: Tensor, gradients: Tensor) -> Tensor:
    """The method's maps N x h x w, in float32, or in float64 where that was given."""
    activations, gradients = full_precision(activations), full_precision(gradients)
    return METHODS[method](activations, gradients)


def full_precision(tensor: Tensor) -> Tensor:
    """Half precision as float32; float32 and float64 as they are."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
