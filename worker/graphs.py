"""`python -m esd.worker.graphs FOLDER`: writes the dense part of a model as `torch.export` and as ONNX.

It runs in a process of its own, since the model may be a user's code, and since torch's compiler takes memory and
seconds to import. The last line of the output has the reasons why a file is missing, by the file's name, in JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from esd.services.domain.errors import EsdError, FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.extras import is_missing
from esd.services.wire.trained_models import DENSE, ONNX, PARAMETERS, PT2, SCORES, input_names, job_of_model
from esd.worker.models import build_model
from esd.worker.models.inputs import Jagged
from esd.worker.models.linear import restore_linear
from esd.worker.models.model import Model
from esd.worker.training.device import prepare_device

_TRACED = (3, 4)  # samples and the longest sequence of the trace
_TRIED = ((1, 1), (2, 3), (17, 5))  # of the trials of what was traced
_TOLERANCE = 1e-5  # of ONNX, whose kernels sum in another order


class DensePart(nn.Module):
    """A model as a function of plain tensors: of each feature its embedding, or its sequences and lengths.

    Args:
        model: in evaluation mode.
        job: of the model.
    """

    def __init__(self, model: Model, job: JobSpec) -> None:
        super().__init__()
        self.model = model
        self._features = tuple((each.name, len(input_names(each))) for each in job.features)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Returns the scores of m samples, float32 [m, L]. The last input are the dense features, float32 [m, d]."""
        left, embeddings = list(inputs), {}
        for name, count in self._features:
            own, left = left[:count], left[count:]
            embeddings[name] = own[0] if count == 1 else Jagged(own[0], own[1])
        return self.model.scores(self.model(embeddings, left[0]))


def dense_part(job: JobSpec, parameters: dict[str, Tensor]) -> DensePart:
    """Builds the dense part of a job's model, with its trained parameters and buffers, on the CPU.

    Raises:
        InvalidArgument: the model cannot be built.
        FailedPrecondition: the parameters belong to another model.
    """
    model = build_model(job)
    try:
        model.load_state_dict(parameters)
    except RuntimeError as error:
        raise FailedPrecondition(f"the stored parameters are not of model {job.model.name}: {error}") from None
    restore_linear(model)
    return DensePart(model.eval(), job).eval()


def example_inputs(part: DensePart, job: JobSpec, samples: int, longest: int) -> tuple[Tensor, ...]:
    """Returns random inputs of m samples whose sequences have up to `longest` rows."""
    generator = torch.Generator().manual_seed(samples)
    found: list[Tensor] = []
    for feature in part.model.inputs.features:
        if feature.longest:
            found.append(torch.randn(samples, longest, feature.dimension, generator=generator))
            found.append(torch.randint(0, longest + 1, (samples,), generator=generator))
        else:
            found.append(torch.randn(samples, feature.dimension, generator=generator))
    return (*found, torch.randn(samples, job.dense_features, generator=generator))


@torch.no_grad()
def trace(part: DensePart, job: JobSpec) -> ExportedProgram:
    """Exports the dense part for any number of samples.

    Raises:
        FailedPrecondition: the model's code cannot be traced, or the trace computes something else.
    """
    batch = Dim("batch")
    shapes: list[dict[int, Dim]] = []
    for number, feature in enumerate(part.model.inputs.features):
        shapes += [{0: batch, 1: Dim(f"longest_{number}")}, {0: batch}] if feature.longest else [{0: batch}]
    shapes.append({0: batch})
    given = example_inputs(part, job, *_TRACED)
    reasons: list[str] = []
    for strict in (False, True):  # the second way reads bytecode, and knows `len` of a tensor
        try:
            program = torch.export.export(part, given, dynamic_shapes=(tuple(shapes),), strict=strict)
            _check(part, job, program.module(), 0.0)
        except Exception as error:  # noqa: BLE001 - of torch's compiler or of the model
            reasons.append(_in_short(error))
        else:
            return program
    raise FailedPrecondition(reasons[0])


def _check(part: DensePart, job: JobSpec, exported: Callable[..., Tensor], tolerance: float) -> None:
    """Compares an exported model with the model. Raises FailedPrecondition if its scores differ."""
    for samples, longest in _TRIED:
        inputs = example_inputs(part, job, samples, longest)
        apart = float((exported(*inputs) - part(*inputs)).abs().max())
        if not apart <= tolerance:
            raise FailedPrecondition(f"the scores of {samples} samples differ by {apart:g} from those of the model")


@torch.no_grad()
def write_onnx(part: DensePart, job: JobSpec, program: ExportedProgram, path: Path) -> None:
    """Writes the dense part as ONNX, and tries it if onnxruntime is here.

    Raises:
        FailedPrecondition: a package is missing, an operation is unknown to ONNX, or scores differ.
    """
    for package in ("onnx", "onnxscript"):
        if find_spec(package) is None:
            raise FailedPrecondition(is_missing("ONNX", package, "export"))
    names = [name for feature in job.features for name in input_names(feature)] + [DENSE]
    exported = torch.onnx.export(
        program,
        (),
        dynamo=True,
        verbose=False,
        optimize=False,
        input_names=names,
        output_names=[SCORES],
        external_data=False,
    )
    assert exported is not None  # noqa: S101 - as for every export that returns
    _optimize(exported)
    exported.save(str(path), external_data=False)
    if find_spec("onnxruntime") is None:
        return
    import onnxruntime  # noqa: PLC0415 - optional

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    taken = {each.name for each in session.get_inputs()}

    def run(*inputs: Tensor) -> Tensor:
        given = {name: value.numpy() for name, value in zip(names, inputs, strict=True) if name in taken}
        return torch.from_numpy(np.asarray(session.run([SCORES], given)[0]))

    _check(part, job, run, _TOLERANCE)


def _optimize(exported: torch.onnx.ONNXProgram) -> None:
    """Simplifies an exported graph, and leaves every parameter in it as it is, under its name.

    The parameters are hidden meanwhile, because those that are known would be computed with: a served model that
    follows a job replaces them by newer ones (esd/model/onnx_parameters.py).
    """
    graph = exported.model.graph
    parameters = {value: value.const_value for value in graph.initializers.values()}
    graph.initializers.clear()
    for value in parameters:
        value.const_value = None
        graph.inputs.append(value)
    exported.optimize()
    for value, content in parameters.items():
        graph.inputs.remove(value)
        value.const_value = content
        graph.initializers.add(value)


def export(job: JobSpec, folder: Path) -> dict[str, str]:
    """Writes `model.pt2` and `model.onnx` to a folder that has the model's parameters.

    Returns:
        The reason for each file that could not be made.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about its own code
        try:
            part = dense_part(job, load_file(folder / PARAMETERS))
            program = trace(part, job)
            torch.export.save(program, folder / PT2)
        except EsdError as error:
            return dict.fromkeys((PT2, ONNX), str(error))
        try:
            write_onnx(part, job, program, folder / ONNX)
        except Exception as error:  # noqa: BLE001 - of torch's exporter
            (folder / ONNX).unlink(missing_ok=True)
            return {ONNX: _in_short(error)}
        return {}


def _in_short(error: BaseException) -> str:
    """Returns the first cause of an error in one line; torch's exporter wraps it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


def main() -> None:
    """Exports the model of the description on standard input."""
    prepare_device("cpu", threads=1)
    sys.path.insert(0, str(Path.cwd()))
    missing = export(job_of_model(sys.stdin.read()), Path(sys.argv[1]))
    sys.stdout.write(f"\n{json.dumps(missing)}\n")


if __name__ == "__main__":
    main()
