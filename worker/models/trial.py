"""A forward and a backward pass on two samples: what cannot train, or not exactly, is found before a job starts."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from services.domain.errors import InvalidArgument
from worker.models.click_model import ClickModel, InputShape


def try_model(model: ClickModel, name: str, shape: InputShape) -> None:
    """Refuses a model that cannot be trained, or whose result would depend on who trains which sample.

    The model is left as it was, without gradients.

    Args:
        model: as it was built.
        name: of the model, for messages.
        shape: of a sample.

    Raises:
        InvalidArgument: says what is wrong, and with which parameter, buffer or shape.
    """
    for parameter, values in model.named_parameters():
        if values.dtype != torch.float32:
            raise InvalidArgument(f"parameter {parameter} of model {name!r} is {values.dtype}, it must be float32")
    generator = torch.Generator().manual_seed(0)
    rows = torch.empty(2, shape.fields, shape.dimension).uniform_(-0.1, 0.1, generator=generator).requires_grad_()
    dense = torch.randn(2, shape.dense_features, generator=generator)
    buffers = {buffer: values.clone() for buffer, values in model.named_buffers()}
    random = torch.get_rng_state()
    try:
        logits = model(rows, dense)
        _check_logits(logits, name)
        _check_unchanged(model, name, buffers, random)
        alone = model(rows[:1], dense[:1])
        labels = torch.tensor([0.0, 1.0])
        torch.autograd.backward(functional.binary_cross_entropy_with_logits(logits, labels))
    except InvalidArgument:
        raise
    except Exception as error:  # the model may be anybody's code
        raise InvalidArgument(
            f"model {name!r} fails on samples of {shape.fields} fields, {shape.dimension} values per row and "
            f"{shape.dense_features} dense features: {type(error).__name__}: {error}"
        ) from error
    finally:
        torch.set_rng_state(random)
        model.zero_grad()
    if rows.grad is None:
        raise InvalidArgument(f"model {name!r} does not use its embedding rows: they have no gradient")
    if not torch.allclose(alone, logits[:1], rtol=1e-3, atol=1e-4):
        raise InvalidArgument(
            f"a logit of model {name!r} depends on the other samples of its batch ({alone.item():g} alone, "
            f"{logits[0].item():g} with another): the result would depend on who trains which sample"
        )


def _check_logits(logits: Tensor, name: str) -> None:
    if not isinstance(logits, Tensor) or logits.shape != (2,) or logits.dtype != torch.float32:
        found = f"{logits.dtype} {list(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise InvalidArgument(f"model {name!r} makes {found} of two samples, it must make float32 [2], their logits")
    if not logits.isfinite().all():
        raise InvalidArgument(f"model {name!r} makes the logits {logits.tolist()} of two samples, they must be finite")


def _check_unchanged(model: ClickModel, name: str, buffers: dict[str, Tensor], random: Tensor) -> None:
    """Refuses what each worker would do in its own way: statistics over a micro-batch, and random numbers."""
    for buffer, values in model.named_buffers():
        if not torch.equal(values, buffers[buffer]):
            raise InvalidArgument(
                f"buffer {buffer} of model {name!r} changes in a forward pass: every worker would have another one; "
                "LayerNorm needs none where BatchNorm does"
            )
    if not torch.equal(torch.get_rng_state(), random):
        raise InvalidArgument(
            f"model {name!r} draws random numbers in a forward pass, such as dropout's: every worker would have others"
        )
