"""A model's folder as a model of MLflow: `mlflow.pyfunc.load_model(FOLDER).predict(frame)`."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from typing import Any

from esd.model.trained import TrainedModel


def mlmodel_text() -> str:
    """Returns the file `MLmodel`, in YAML."""
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return (
        "flavors:\n"
        "  python_function:\n"
        "    loader_module: esd.model.mlflow\n"
        f"    python_version: {platform.python_version()}\n"
        f"utc_time_created: '{now}'\n"
    )


class PythonFunction:
    """The model as MLflow calls it."""

    def __init__(self, model: TrainedModel) -> None:
        self._model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:  # noqa: ARG002 - of MLflow
        """Returns the scores of a frame, float32 [n, L]."""
        return self._model.predict(model_input)


def _load_pyfunc(path: str) -> PythonFunction:
    return PythonFunction(TrainedModel(path))
