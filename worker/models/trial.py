"""A trial of a model on two samples, which reveals before a job starts that the model cannot train exactly."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.users_code import place_of, raise_if_stopped
from esd.worker.models.buffer_trial import TriedBuffers, evaluating
from esd.worker.models.inputs import Jagged, ModelInputs, SharedLists
from esd.worker.models.model import Batch, Model


def try_model(model: Model, name: str, inputs: ModelInputs) -> None:
    """Refuses a model that cannot be trained, or whose result would depend on the dispatch.

    The model is left unchanged, without gradients.

    Args:
        model: the newly built model.
        name: name of the model, for messages.
        inputs: the shape of a sample.

    Raises:
        InvalidArgument: the model fails a check; the message names the parameter, buffer or shape at fault.
    """
    for parameter, values in model.named_parameters():
        if values.dtype != torch.float32:
            raise InvalidArgument(f"parameter {parameter} of model {name!r} is {values.dtype}, it must be float32")
    pair = _two_samples(inputs)
    random = torch.get_rng_state()
    try:
        buffers = TriedBuffers(model, name)
        with buffers.left_by("two samples"):
            outputs, losses, scores = _apply(model, pair, name)
            torch.autograd.backward(losses.sum())
        buffers.check_constants()
        _check_not_random(name, random)
        with buffers.left_by("the first"):
            alone = _apply(model, _sample(pair, 0), name)
        if buffers.rules:
            with buffers.left_by("the second"):
                _apply(model, _sample(pair, 1), name, first=1)
            with evaluating(model), buffers.left_by("an evaluation"):
                _apply(model, pair, name)
            buffers.check_rules()
    except InvalidArgument:
        raise
    except BaseException as error:  # the model may be a user's code
        raise_if_stopped(error)
        raise InvalidArgument(
            f"model {name!r} fails on samples of {inputs}: {type(error).__name__}: {error}{place_of(error)}"
        ) from error
    finally:
        torch.set_rng_state(random)
        model.zero_grad()
    rows = [each if isinstance(each, Tensor) else each.values for each in pair.embeddings.values()]
    if all(each.grad is None for each in rows):
        raise InvalidArgument(f"model {name!r} does not use its embedding rows: they have no gradient")
    for what, together, single in zip(
        ("an output", "the loss", "a score"), (outputs, losses, scores), alone, strict=True
    ):
        _check_independent(together[:1], single, what, name)


def _two_samples(inputs: ModelInputs) -> Batch:
    generator = torch.Generator().manual_seed(0)
    embeddings: dict[str, Tensor | Jagged | SharedLists] = {}
    for feature in inputs.features:
        lengths = torch.tensor([max(1, feature.longest // 2), feature.longest])
        shape = (2, feature.longest, feature.dimension) if feature.longest else (2, feature.dimension)
        values = torch.empty(shape).uniform_(-0.1, 0.1, generator=generator)
        if not feature.longest:
            embeddings[feature.name] = values.requires_grad_()
            continue
        values[0, int(lengths[0]) :] = 0
        embeddings[feature.name] = Jagged(values.requires_grad_(), lengths)
    if (drawn := inputs.negatives) is not None:
        values = torch.empty(1, drawn.longest, drawn.dimension).uniform_(-0.1, 0.1, generator=generator)
        embeddings[drawn.name] = SharedLists(values.requires_grad_(), torch.zeros(2, dtype=torch.int64))
    dense = torch.randn(2, inputs.dense, generator=generator)
    labels = torch.tensor([[0.0], [1.0]]).expand(2, len(inputs.labels)).clone()
    return Batch(embeddings, dense, labels)


def _sample(pair: Batch, at: int) -> Batch:
    this = slice(at, at + 1)
    return Batch({name: each[this] for name, each in pair.embeddings.items()}, pair.dense[this], pair.labels[this])


def _apply(model: Model, batch: Batch, name: str, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Returns outputs, losses and scores, with checked shapes; `first` is the position of the first sample."""
    samples, labels = batch.labels.shape
    model.samples.begin(0, np.arange(first, first + samples, dtype=np.uint32))
    outputs = model(batch.embeddings, batch.dense)
    shapes = "float32 [2, L], a row of outputs for each"
    if not isinstance(outputs, Tensor) or outputs.shape[:1] != (samples,) or outputs.dtype != torch.float32:
        raise InvalidArgument(f"model {name!r} makes {_form(outputs)} of two samples, it must make {shapes}")
    if not outputs.isfinite().all():
        raise InvalidArgument(f"model {name!r} makes {outputs.tolist()} of two samples, they must be finite")
    if type(model).loss is Model.loss and outputs.numel() != samples * labels:
        raise InvalidArgument(
            f"model {name!r} makes {_form(outputs)} of two samples with {labels} labels, it must make one logit for "
            "each label, or have a `loss` of its own"
        )
    losses, scores = model.loss(outputs, batch), model.scores(outputs)
    for what, found, shape in (("loss", losses, (samples,)), ("scores", scores, (samples, labels))):
        if not isinstance(found, Tensor) or found.shape != shape or not found.isfinite().all():
            raise InvalidArgument(
                f"`{what}` of model {name!r} makes {_form(found)} of two samples, it must make {list(shape)}, finite"
            )
    if not ((scores >= 0) & (scores <= 1)).all():
        raise InvalidArgument(
            f"`scores` of model {name!r} makes {scores.tolist()} of two samples, they must be in 0..1"
        )
    return outputs, losses, scores


def _form(found: object) -> str:
    return f"{found.dtype} {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__


def _check_independent(together: Tensor, alone: Tensor, what: str, name: str) -> None:
    # Outputs may be as long as the longest list of the samples. Only the part that both have is compared: if what comes
    # after the end of a sample's list counts, its loss differs.
    if together.ndim != alone.ndim:
        raise InvalidArgument(f"model {name!r} makes outputs of {together.ndim} and of {alone.ndim} dimensions")
    common = tuple(slice(min(sizes)) for sizes in zip(together.shape, alone.shape, strict=True))
    together, alone = together[common], alone[common]
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4):
        raise InvalidArgument(
            f"{what} of model {name!r} depends on the other samples of its batch ({alone.flatten()[0].item():g} alone, "
            f"{together.flatten()[0].item():g} with another): the result would depend on the dispatch"
        )


def _check_not_random(name: str, before: Tensor) -> None:
    """Refuses random numbers, which would differ between workers."""
    if not torch.equal(torch.get_rng_state(), before):
        raise InvalidArgument(
            f"model {name!r} draws random numbers in a forward pass, which would differ between workers; only "
            "the draws of torch.nn.Dropout as a module of the model do not"
        )
