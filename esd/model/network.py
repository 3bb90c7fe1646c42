"""The dense part of a model: from the embeddings of samples to their scores, by onnxruntime or by torch."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from esd.model.embeddings import Inputs
from esd.model.onnx_parameters import Parameters, with_parameters
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.extras import is_missing
from esd.services.wire.trained_models import ONNX, PARAMETERS, SCORES


class Network(Protocol):
    """Computes scores."""

    def __call__(self, inputs: Inputs) -> NDArray[np.float32]:
        """Returns the scores of m samples, float32 [m, L], of inputs as `model_inputs` makes them."""


class OnnxNetwork:
    """`model.onnx` in onnxruntime, on the CPU.

    Args:
        path: of the file.
        threads: that compute one call; None: onnxruntime's own number of them, which wait for the next call busily.
        parameters: parameters and buffers by name, in place of the file's; None: the file's.

    Raises:
        FailedPrecondition: onnxruntime is not installed, or cannot run the file; or the parameters are not the file's.
    """

    def __init__(self, path: Path, threads: int | None = None, parameters: Parameters | None = None) -> None:
        if find_spec("onnxruntime") is None:
            raise FailedPrecondition(is_missing(f"scoring by {path.name}", "onnxruntime", "predict"))
        model = str(path) if parameters is None else with_parameters(path, parameters)
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        try:
            self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common class
            raise FailedPrecondition(f"onnxruntime cannot run {path}: {error}") from None
        self._inputs = [each.name for each in self._session.get_inputs()]

    def __call__(self, inputs: Inputs) -> NDArray[np.float32]:
        """See Network."""
        scores: NDArray[np.float32] = self._session.run([SCORES], {name: inputs[name] for name in self._inputs})[0]
        return scores


class TorchNetwork:
    """The class of the model in torch, on the CPU, for a folder without `model.onnx`.

    Args:
        folder: of the model.
        job: of the model, whose class is imported if it is a user's own.
        parameters: parameters and buffers by name, in place of the folder's; None: the folder's.

    Raises:
        FailedPrecondition: torch is not installed, or the parameters are of another model.
        InvalidArgument: the model cannot be imported or built.
    """

    def __init__(self, folder: Path, job: JobSpec, parameters: Parameters | None = None) -> None:
        if find_spec("torch") is None:
            raise FailedPrecondition(f"{folder} has no {ONNX}, and to score without it torch must be installed")
        self._torch: Any = import_module("torch")
        here = str(Path.cwd())
        with contextlib.ExitStack() as stack:
            if here not in sys.path:
                sys.path.insert(0, here)
                stack.callback(sys.path.remove, here)
            tensors = (
                import_module("safetensors.torch").load_file(folder / PARAMETERS)
                if parameters is None
                else {name: self._torch.from_numpy(np.array(values)) for name, values in parameters.items()}
            )
            self.part: Any = import_module("esd.worker.graphs").dense_part(job, tensors)

    def __call__(self, inputs: Inputs) -> NDArray[np.float32]:
        """See Network."""
        with self._torch.inference_mode():
            scores: NDArray[np.float32] = self.part(*map(self._torch.from_numpy, inputs.values())).numpy()
            return scores
