"""A user's own model, found by its import path."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument
from esd.services.runtime.users_code import place_of, raise_if_stopped
from esd.worker.models.model import Model

# Errors that may not occur again in a restarted process.
_PASSING = (MemoryError, torch.OutOfMemoryError, torch.AcceleratorError)

_log = logging.getLogger(__name__)


def import_model(path: str) -> type[Model]:
    """Imports the class of a path `package.module:Class`.

    Python's usual search applies: installed packages, PYTHONPATH, the folder in which the command was called, and the
    folder ESD_WORKER_CODE.

    Raises:
        InvalidArgument: the module or class does not exist, cannot be imported, or is not a subclass of `esd.Model`.
    """
    module_name, _, class_name = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), class_name)):
        raise InvalidArgument(f"model {path!r} is not an import path: package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:  # the module may be a user's code
        raise_if_stopped(error)
        raise InvalidArgument(
            f"model {path!r}: module {module_name} cannot be imported: {type(error).__name__}: {error}"
            f"{place_of(error)} (PYTHONPATH, or ESD_WORKER_CODE of a service, names a folder to look in; "
            f"looked in {', '.join(filter(None, sys.path))})"
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        raise InvalidArgument(f"model {path!r}: module {module_name} ({module.__file__}) has no {class_name}")
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise InvalidArgument(f"model {path!r} is {found!r}, it must be a subclass of esd.Model")
    return found


@contextmanager
def failures_named(model: str, doing: str) -> Iterator[None]:
    """Turns an error of a model's code into one that names the model and is not retried: it would fail again.

    Args:
        model: name of the model.
        doing: its use, such as `in iteration 7`.

    Raises:
        FailedPrecondition: the code of the model fails.
    """
    try:
        yield
    except (EsdError, *_PASSING):
        raise
    except BaseException as error:
        raise_if_stopped(error)
        _log.exception("model %s fails %s", model, doing)
        raise FailedPrecondition(
            f"model {model!r} fails {doing}: {type(error).__name__}: {error}{place_of(error)}"
        ) from error
