"""`esd simulate`: the dispatch of a run without network and tensors: operations, cost, makespan, hit ratio."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from esd.cli import options as opt
from esd.cli.console import Json
from esd.cli.options import takes_run_options
from esd.cli.report import print_result
from esd.cli.storage import CheckpointDir, Shards, Store
from esd.dispatcher.simulator.alternatives import ALTERNATIVES
from esd.run.options import RunOptions
from esd.run.simulation import replay_run, simulate_run
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sync import OnDemand

Trace = Annotated[Path | None, typer.Option(help="uint64 [N, F] ids in a .npy file, instead of --data.")]
Assignments = Annotated[
    Path | None, typer.Option(help="int32 [iterations, k] workers in a .npy file, instead of a mechanism.")
]
AlternativeOption = Annotated[
    str | None,
    typer.Option(
        "--alternative",
        help=f"A protocol that is simulated only, in place of --sync: {', '.join(ALTERNATIVES)}.",
    ),
]
Dims = Annotated[
    str | None,
    typer.Option(
        help="Values per row by field, where rows differ in size: one number per field, 16,64,..., or some by name, "
        "origin=16,dest=16 (of a trace: 0=16,1=16); the others have --dim. A cache then has "
        "the bytes that its rows would have with --dim values each.",
        show_default="--dim",
    ),
]
ReplayLog = Annotated[
    Path | None,
    typer.Option(
        help="Decision log of a run: makes its plans again from the same data (--data, --seed, --skip-bad) and checks "
        "them byte for byte. Everything else is as recorded."
    ),
]
ComputeUs = Annotated[
    str, typer.Option(help="Computation per sample, microseconds, of all workers or of each: 50 or 50,50,200,200.")
]


@takes_run_options
def command(
    chosen: RunOptions,
    trace: Trace = None,
    assignments: Assignments = None,
    compute_us: ComputeUs = "0",
    alternative: AlternativeOption = None,
    dims: Dims = None,
    replay: ReplayLog = None,
    _store: Store = "memory",  # a training command can be simulated as it stands
    shards: Shards = 1,
    _checkpoint_dir: CheckpointDir = None,
    _decision_log: opt.DecisionLog = None,
    as_json: Json = False,
    _out: opt.Out = None,
) -> None:
    """Simulates a run: the same decisions and operations, without network and tensors."""
    if replay is not None:
        for option, value in (("--trace", trace), ("--assignments", assignments), ("--dims", dims)):
            if value is not None:
                raise InvalidArgument(f"--replay makes the recorded plans again, {option} would change them")
        print_result(f"replay of {replay.name}", replay_run(chosen, replay), as_json=as_json)
        return
    table = None if assignments is None else _load(assignments, np.int32, "--assignments")
    ids = None if trace is None else _load(trace, np.uint64, "--trace")
    name = chosen.mechanism if table is None else "given assignments"
    if alternative is not None or chosen.sync != OnDemand.name:
        name += f", {alternative or chosen.sync}"
    if chosen.direct:
        name += ", direct"
    seconds = _compute_seconds(compute_us, chosen.workers)
    print_result(name, simulate_run(chosen, ids, table, seconds, alternative, dims, shards), as_json=as_json)


def _compute_seconds(text: str, workers: int) -> list[float]:
    """Reads the time that each worker computes per sample. Returns seconds, one number per worker."""
    try:
        seconds = [float(part) / 1e6 for part in text.split(",")]
    except ValueError:
        raise InvalidArgument(f"--compute-us {text!r} is not a list of numbers") from None
    if len(seconds) not in (1, workers) or not all(math.isfinite(s) and s >= 0 for s in seconds):
        raise InvalidArgument(f"--compute-us {text!r} must be one number or {workers}, not negative")
    return seconds * (workers if len(seconds) == 1 else 1)


def _load(path: Path, dtype: type[np.generic], option: str) -> NDArray[Any]:
    """Reads a matrix from a .npy file.

    Raises:
        InvalidArgument: the file cannot be read, holds another shape or dtype, or is empty.
    """
    try:
        with path.open("rb") as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidArgument(f"{option} {path} cannot be read: {error}") from None
    if array.ndim != 2 or array.dtype != dtype:
        raise InvalidArgument(
            f"{option} {path} is {array.dtype} {list(array.shape)}, it must be {np.dtype(dtype)} [., .]"
        )
    if not array.size:
        raise InvalidArgument(f"{option} {path} is empty: {list(array.shape)}")
    return array
