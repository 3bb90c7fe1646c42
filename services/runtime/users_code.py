"""The place of an error in a user's own code: models, losses, readers."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_OURS = Path(__file__).resolve().parents[2]  # services and its neighbours, in a checkout or in the package esd
_PYTHON = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
_INSTALLED = {"site-packages", "dist-packages"}


def place_of(error: BaseException) -> str:
    """Returns the innermost frame of a user's own code in an error's traceback: ` (net.py:12, in forward: LINE)`.

    Frames of ESD, of Python and of installed packages do not count. Empty if there is no other frame.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno}: {(error.text or '').strip()})"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    if not own:
        return ""
    frame = own[-1]
    return f" ({frame.filename}:{frame.lineno}, in {frame.name}: {(frame.line or '').strip()})"


def _is_users(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    if _INSTALLED & set(path.parts) or any(path.is_relative_to(folder) for folder in _PYTHON):
        return False
    inside = path.relative_to(_OURS).parts[:1] if path.is_relative_to(_OURS) else ()
    return not (inside and inside[0] in ("esd", "services", "worker", "dispatcher", "ps_server", "protos"))
