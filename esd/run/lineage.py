"""Where a model comes from, as its folder and the folder of its run say."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from esd.data.schema import Schema
from esd.run.results import finite
from esd.services.domain.jobs import JobSpec

_PACKAGES = {"esd": "esd-train", "numpy": "numpy", "torch": "torch", "onnx": "onnx"}


@dataclass(frozen=True, slots=True)
class Lineage:
    """Where a model comes from, as far as its exporter knows.

    Attributes:
        schema: of the trained samples.
        options: of the run, as plain values.
        figures: the result of the run.
        history: lines of the figures over the iterations, as `esd.run.record.history_of` yields them.
    """

    schema: Schema | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()

    def described(self, job: JobSpec) -> dict[str, Any]:
        """Returns the options of a run, the fingerprint of its samples, its versions and its figures, as JSON values.

        `data` is the fingerprint of the samples: two runs with the same one have trained the same samples in order.
        """
        return {
            "data": job.stream,
            "versions": _versions(),
            "options": dict(self.options),
            "figures": finite(dict(self.figures)),
        }


UNKNOWN = Lineage()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name, package in _PACKAGES.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found
