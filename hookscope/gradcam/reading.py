"""One forward pass under the question's precision, and the class scores that it ends in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hookscope.gradcam.question import PRECISIONS, Question
from hookscope.maps.targets import Board, read_output


def asked(run: Callable[[], Any], x: Tensor, question: Question) -> Board:
    """The board of what ``run`` returns, on the device of ``x``."""
    dtype = PRECISIONS[question.precision]
    if dtype is None:
        output = run()
    else:
        with torch.autocast(x.device.type, dtype):
            output = run()
    return read_output(
        output,
        question.output_key,
        multi_label=question.multi_label,
        background=question.background,
    )
