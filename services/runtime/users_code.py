"""Errors of a user's own code: models, losses, readers."""

from __future__ import annotations

import asyncio
import sysconfig
import threading
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


def raise_if_stopped(error: BaseException) -> None:
    """Raises an error again that stops this process or its task, and that the user's code only happens to meet.

    Code may raise SystemExit or KeyboardInterrupt itself. These would end the process as if it were done, and it would
    be started again and again; so they are errors of the code. Ctrl-C raises KeyboardInterrupt in the main thread.
    """
    ctrl_c = isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
    if ctrl_c or isinstance(error, GeneratorExit | asyncio.CancelledError):
        raise error


def _is_users(filename: str) -> bool:
    if filename.startswith("<"):
        return False
    path = Path(filename).resolve()
    if _INSTALLED & set(path.parts) or any(path.is_relative_to(folder) for folder in _PYTHON):
        return False
    inside = path.relative_to(_OURS).parts[:1] if path.is_relative_to(_OURS) else ()
    return not (inside and inside[0] in ("esd", "services", "worker", "dispatcher", "ps_server", "protos"))
