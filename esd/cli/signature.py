"""Commands that share options: one dataclass states them once, with names, help and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, get_type_hints

from esd.cli.options import RunOptions


def takes_run_options(function: Callable[..., None]) -> Callable[..., None]:
    """Turns `function(chosen: RunOptions, ...)` into a command whose options are RunOptions' fields and its own."""
    own = list(inspect.signature(function).parameters.values())[1:]
    hints = get_type_hints(function, include_extras=True)
    shared = get_type_hints(RunOptions, include_extras=True)
    names = [field.name for field in fields(RunOptions)]

    @wraps(function)
    def command(**values: Any) -> None:
        chosen = RunOptions(**{name: values.pop(name) for name in names})
        function(chosen, **values)

    parameters = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
        for field in fields(RunOptions)
    ]
    parameters += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    annotations = {**shared, **hints}
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(annotation=annotations[parameter.name]) for parameter in parameters]
    )
    command.__annotations__ = {parameter.name: annotations[parameter.name] for parameter in parameters}
    return command
