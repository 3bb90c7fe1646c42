"""The dense (MLP) parameters: the same on every worker, trained on the summed gradient."""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import nn

from services.domain.errors import FailedPrecondition
from services.domain.tables import OptimizerKind, OptimizerSpec


class DenseParameters:
    """Parameters of a model whose gradients live in one flat vector, so that one all-reduce sums them all."""

    def __init__(self, model: nn.Module, optimizer: OptimizerSpec) -> None:
        """Takes over the gradients of `model`, which must already be on its device."""
        self._named = dict(model.named_parameters())
        parameters = list(self._named.values())
        self.gradients = torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)
        begin = 0
        for parameter in parameters:
            end = begin + parameter.numel()
            parameter.grad = self.gradients[begin:end].view_as(parameter)
            begin = end
        self._optimizer = _dense_optimizer(parameters, optimizer)

    def clear_gradients(self) -> None:
        """Before a backward pass; also what a worker without samples contributes."""
        self.gradients.zero_()

    def step(self) -> None:
        """Applies the summed gradients."""
        self._optimizer.step()

    def to_npz(self) -> bytes:
        """All parameters by name, as numpy's .npz format in memory."""
        buffer = io.BytesIO()
        np.savez(buffer, **{name: p.detach().cpu().numpy() for name, p in self._named.items()})  # type: ignore[arg-type]
        return buffer.getvalue()

    def save(self) -> bytes:
        """Parameters and the optimizer's state, for `load`: .npz with `parameter/NAME` and `state/NAME/KEY`."""
        arrays = {f"parameter/{name}": p.detach().cpu().numpy() for name, p in self._named.items()}
        for name, parameter in self._named.items():
            for key, value in self._optimizer.state[parameter].items():
                arrays[f"state/{name}/{key}"] = torch.as_tensor(value).detach().cpu().numpy()
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]
        return buffer.getvalue()

    def load(self, data: bytes) -> None:
        """Goes back to what `save` returned, of the same model and optimizer.

        Raises:
            FailedPrecondition: parameters are missing or have other shapes.
        """
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays, torch.no_grad():
            for name, parameter in self._named.items():
                saved = arrays.get(f"parameter/{name}")
                if saved is None or saved.shape != tuple(parameter.shape):
                    raise FailedPrecondition(f"the checkpoint does not hold dense parameter {name} of this model")
                parameter.copy_(torch.from_numpy(saved))
                state = self._optimizer.state[parameter]
                prefix = f"state/{name}/"
                for key in arrays.files:
                    if key.startswith(prefix):
                        value = torch.from_numpy(arrays[key])
                        # As torch.optim: step counters stay on the host.
                        place = torch.device("cpu") if value.ndim == 0 else parameter.device
                        state[key.removeprefix(prefix)] = value.to(place)


def _dense_optimizer(parameters: list[nn.Parameter], spec: OptimizerSpec) -> torch.optim.Optimizer:
    match spec.kind:
        case OptimizerKind.SGD:
            return torch.optim.SGD(parameters, lr=spec.learning_rate)
        case OptimizerKind.ROWWISE_ADAGRAD:  # element-wise here: a matrix of an MLP is not a set of rows
            return torch.optim.Adagrad(parameters, lr=spec.learning_rate, eps=spec.epsilon)
        case OptimizerKind.ADAM:
            betas = (spec.beta1, spec.beta2)
            return torch.optim.Adam(parameters, lr=spec.learning_rate, betas=betas, eps=spec.epsilon)
