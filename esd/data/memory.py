"""Answers about data that take long to find, kept below the user's cache directory (XDG_CACHE_HOME, ~/.cache)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from functools import cache
from pathlib import Path

from esd.services.runtime.whole_files import write_whole

_log = logging.getLogger(__name__)


def recall(kind: str, question: str) -> object:
    """Returns the JSON value that was kept for a question; None if there is none, or none that can be read."""
    try:
        entry = json.loads(_file(kind, question).read_text())
    except (OSError, ValueError):  # absent, unreadable or damaged: find it anew
        return None
    if not isinstance(entry, dict) or entry.get("question") != question:
        return None
    return entry.get("answer")


def remember(kind: str, question: str, answer: object) -> None:
    """Keeps a JSON value; where nothing can be written, one warning reports it for all answers."""
    entry = json.dumps({"question": question, "answer": answer}).encode()
    try:
        write_whole(_file(kind, question), lambda draft: draft.write(entry))
    except OSError as error:
        folder = _folder()
        _warn("this user has no home directory" if folder is None else f"{folder}: {error.strerror}")


@cache
def _warn(place: str) -> None:
    _log.warning("answers about the data are not remembered, and are found anew each time: %s", place)


def _file(kind: str, question: str) -> Path:
    """Returns the file of an answer. Raises FileNotFoundError if there is no folder for it."""
    folder = _folder()
    if folder is None:
        raise FileNotFoundError
    return folder / kind / f"{hashlib.sha256(question.encode()).hexdigest()}.json"


def _folder() -> Path | None:
    """Returns the folder of all answers; None for a user without a home directory, such as a bare number."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "esd"
    try:
        return Path.home() / ".cache" / "esd"
    except RuntimeError:
        return None
