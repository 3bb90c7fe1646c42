"""The page on the native kernels names every folder, only files that exist, and the right order of includes."""

from __future__ import annotations

import re
from pathlib import Path

NATIVE = Path(__file__).parents[3] / "native"
PAGE = (NATIVE / "README.md").read_text()


def test_every_folder_has_a_line() -> None:
    folders = {path.relative_to(NATIVE).as_posix() for path in NATIVE.rglob("*") if path.is_dir()}
    assert {folder.rstrip("/") for folder in re.findall(r"^\| `(\S+/)` \|", PAGE, re.MULTILINE)} == folders


def test_every_file_that_is_named_exists() -> None:
    files = set(re.findall(r"`([\w/]+\.(?:h|cpp))`", PAGE)) | {
        f"{name}.h" for name in re.findall(r"    (\w+/\w+)  ", PAGE)
    }
    homes = (NATIVE, *(folder for folder in NATIVE.iterdir() if folder.is_dir()))
    assert len(files) > 10
    assert [file for file in files if not any((home / file).is_file() for home in homes)] == []


def test_includes_point_up_in_the_table_of_rooms() -> None:
    rooms = re.findall(r"^\| `(engine/(?:\w+/)+|engine/engine\.h)` \|", PAGE, re.MULTILINE)
    order = {room: rank for rank, room in enumerate(rooms)}
    assert len(order) == 10
    upward = []
    for path in (NATIVE / "engine").rglob("*.[hc]*"):
        for include in re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE):
            if (
                include.startswith("engine/")
                and order[_room(include)] > order[_room(path.relative_to(NATIVE).as_posix())]
            ):
                upward.append((path.name, include))
            # Messages are written out of the engine's plans, for Python and for the streams of the fuzzer.
            above = path.name == "fuzz.cpp" or path.parent.name == "python"
            allowed = {"common", "solver", "engine", *(["wire"] if above else [])}
            assert include.split("/")[0] in allowed, (path, include)
    assert upward == []


def _room(file: str) -> str:
    """The room of a file; a file in no room is the engine's own."""
    room = re.match(r"engine/(?:\w+/)+", file)
    return room[0] if room else "engine/engine.h"
