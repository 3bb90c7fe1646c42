"""The chart for Kubernetes, rendered by Helm's own library."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import yaml

CHART = Path(__file__).parents[2] / "deploy" / "chart"

# The value files that everything is tried with; an empty name stands for the defaults.
VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    **{file.stem.removesuffix("-values"): yaml.safe_load(file.read_text()) for file in sorted(CHART.glob("ci/*.yaml"))},
}

Object = dict[str, Any]


def render(values: dict[str, Any], chart: Path = CHART) -> list[Object]:
    """Returns the objects of a release `esd` in the namespace `training`."""
    texts = _rendered(json.dumps(values), chart)
    return [each for text in texts for each in yaml.safe_load_all(text) if each is not None]


@cache
def _loaded(chart: Path) -> helm_python.Chart:
    return helm_python.Chart.load(chart)


@cache
def _rendered(values: str, chart: Path) -> tuple[str, ...]:
    rendered = _loaded(chart).render(json.loads(values), name="esd", namespace="training")
    return tuple(text for path, text in rendered.items() if path.endswith(".yaml"))


def find(objects: list[Object], kind: str, name: str) -> Object:
    """Returns the object of a kind with a name."""
    (found,) = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def pods(objects: list[Object]) -> dict[str, Object]:
    """Returns the specs of all pods by the names of their workloads."""
    workloads = [each for each in objects if each["kind"] in {"StatefulSet", "Deployment", "Job"}]
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in workloads}


def environment(pod: Object) -> dict[str, str]:
    """Returns the variables of a pod's container that have a value in the chart."""
    return {each["name"]: each["value"] for each in pod["containers"][0].get("env", []) if "value" in each}
