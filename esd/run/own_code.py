"""A model's class that only this process has, such as one of a notebook's cell, as a module that workers import."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from esd.services.domain.errors import FailedPrecondition
from esd.services.runtime.extras import is_missing

_PATH = "PYTHONPATH"
_MODULE = '''"""Made by ESD of the class {name}, which was defined in a program or in a notebook's cell."""

import pickle
from pathlib import Path

{name} = pickle.loads(Path(__file__).with_suffix(".pickle").read_bytes())
'''


def model_path(model: type[Any] | str, folder: Path) -> str:
    """Returns the name of a model for a job: as it is, or `module:Class` of a class.

    A class that cannot be imported elsewhere, since its module is the running program or since it is local to a
    function, is written to the folder by value, with everything of its module that it uses. This process then knows the
    module, too.

    Raises:
        FailedPrecondition: cloudpickle is not installed, or the class has something that cannot be pickled.
    """
    if isinstance(model, str) or _is_importable(model):
        return importable_path(model)
    if importlib.util.find_spec("cloudpickle") is None:
        raise FailedPrecondition(
            is_missing(f"model {model.__name__}, which this program defines,", "cloudpickle", "train")
        )
    try:
        content: bytes = import_module("cloudpickle").dumps(model)
    except Exception as error:
        raise FailedPrecondition(
            f"model {model.__name__} cannot be sent to the workers: {error}; define it in a module of its own"
        ) from error
    module = f"esd_own_{hashlib.sha256(content).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.pickle").write_bytes(content)
    (folder / f"{module}.py").write_text(_MODULE.format(name=model.__name__))
    here = ModuleType(module)
    setattr(here, model.__name__, model)
    sys.modules[module] = here
    return f"{module}:{model.__name__}"


def importable_path(model: type[Any] | str) -> str:
    """Returns the name of a model for a job whose workers run already: as it is, or `module:Class` of a class.

    Raises:
        FailedPrecondition: the class cannot be imported elsewhere.
    """
    if isinstance(model, str):
        return model
    if not _is_importable(model):
        raise FailedPrecondition(
            f"model {model.__name__} is defined in this program, and workers that run already cannot import it: put it "
            "in a module of the folder that their ESD_WORKER_CODE names, and import it here, too"
        )
    return f"{model.__module__}:{model.__qualname__}"


def _is_importable(model: type[Any]) -> bool:
    return model.__module__ != "__main__" and "<locals>" not in model.__qualname__


@contextmanager
def found_by_children(folder: Path) -> Iterator[None]:
    """Has processes that are started in the block find modules of a folder, and those that this process finds."""
    added = [str(folder), *(place or str(Path.cwd()) for place in sys.path if place == "" or Path(place).is_dir())]
    before = os.environ.get(_PATH)
    os.environ[_PATH] = os.pathsep.join([*added, *filter(None, [before])])
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_PATH, None)
        else:
            os.environ[_PATH] = before
