"""Answers about data that take long to find, kept below the user's cache directory (XDG_CACHE_HOME, ~/.cache)."""

from __future__ import annotations

import hashlib
import json
import logging
import os
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
    """Keeps a JSON value; where nothing can be written, a warning says so."""
    file = _file(kind, question)
    entry = json.dumps({"question": question, "answer": answer}).encode()
    try:
        write_whole(file, lambda draft: draft.write(entry))
    except OSError as error:
        _log.warning("an answer about the data cannot be remembered in %s: %s", file, error)


def _file(kind: str, question: str) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "esd" / kind / f"{hashlib.sha256(question.encode()).hexdigest()}.json"
