"""A model of one's own, found by its import path."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from esd.services.domain.errors import EsdError, FailedPrecondition, InvalidArgument
from esd.worker.models.model import Model

# What may go well the next time, in a process that has been started again.
_PASSING = (MemoryError, torch.OutOfMemoryError, torch.AcceleratorError)

_log = logging.getLogger(__name__)


def import_model(path: str) -> type[Model]:
    """Returns the class that `package.module:Class` names.

    It is looked for where Python looks for any module: installed packages, PYTHONPATH, the folder in which the command
    was called, and the folder ESD_WORKER_CODE.

    Raises:
        InvalidArgument: there is no such module or class, it cannot be imported, or it is no `esd.Model`.
    """
    module_name, _, class_name = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), class_name)):
        raise InvalidArgument(f"model {path!r} is no import path: package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # it may be anybody's code
        raise InvalidArgument(
            f"model {path!r}: module {module_name} cannot be imported: {type(error).__name__}: {error} "
            f"(ESD_WORKER_CODE names a folder to look in; looked in {', '.join(filter(None, sys.path))})"
        ) from error
    found = getattr(module, class_name, None)
    if found is None:
        raise InvalidArgument(f"model {path!r}: module {module_name} ({module.__file__}) has no {class_name}")
    if not (isinstance(found, type) and issubclass(found, Model)):
        raise InvalidArgument(f"model {path!r} is {found!r}, it must be a subclass of esd.Model")
    return found


@contextmanager
def failures_named(model: str, doing: str) -> Iterator[None]:
    """Says of a model whose code fails that it does, for whoever reads no log: on the same samples it would fail again.

    Args:
        model: its name.
        doing: what it was used for: `in iteration 7`.

    Raises:
        FailedPrecondition: it fails.
    """
    try:
        yield
    except (EsdError, *_PASSING):
        raise
    except Exception as error:
        _log.exception("model %s fails %s", model, doing)
        raise FailedPrecondition(f"model {model!r} fails {doing}: {type(error).__name__}: {error}") from error
