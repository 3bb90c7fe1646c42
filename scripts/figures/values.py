"""The output of a figure's commands, and the expressions over it."""

from __future__ import annotations

import ast
import json
import operator
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scripts.figures.entries import ROOT, Figure

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max}


def values_of(figure: Figure) -> Mapping[str, Any]:
    """Runs the commands of a figure, each once per process, and returns the names that its expressions may use."""
    found = {name: _rows(figure, _printed_by(command)) for name, command in figure.commands.items()}
    return found if figure.each else found[""]


def evaluate(expression: str, names: Mapping[str, Any], value: str) -> Any:
    """Computes an expression: names, `.` to go into objects, + - * /, min, max, and sum over the values of an object.

    A list of numbers stands for its sum, and an object for its field `value`.

    Raises:
        ValueError: the expression has another operator, or a name without a value.
    """
    try:
        return _Expression(names, value).result(ast.parse(expression, mode="eval").body)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{expression!r} has no value: {error!r}") from error


@dataclass(frozen=True, slots=True)
class _Expression:
    """An expression that is being evaluated, with its names."""

    names: Mapping[str, Any]
    value: str

    def result(self, node: ast.expr) -> Any:
        """Computes a part of an expression, to a number or a word."""
        found = self._reached(node)
        if isinstance(found, dict):
            found = found[self.value]
        return sum(found) if isinstance(found, list) else found

    def _reached(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.names[node.id]
            case ast.Attribute():
                return _named(self._reached(node.value))[node.attr]
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return _OPERATORS[type(node.op)](self.result(node.left), self.result(node.right))
            case ast.Call(func=ast.Name(id="sum"), args=[several]):
                return sum(self._reached(several).values())
            case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*map(self.result, node.args))
        raise ValueError(f"{ast.unparse(node)!r} is no expression of a figure")


def _rows(figure: Figure, printed: Any) -> Mapping[str, Any]:
    """Returns the output of a command by names; the rows of a list by their keys."""
    if not figure.rows:
        return _named(printed)
    alike: dict[str, list[Any]] = {}
    for row in printed if figure.rows == "." else printed[figure.rows]:
        alike.setdefault("_".join(str(row[field]) for field in figure.key), []).append(row)
    return _named({key: _median(rows) for key, rows in alike.items()})


def _median(values: Sequence[Any]) -> Any:
    """Returns the medians of repeated measurements, number by number."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _median([each[key] for each in values]) for key in first}
    return statistics.median(values) if isinstance(first, int | float) else first


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Makes names of keys: `joint, L = 8` is joint_L_8, and `64, unequal` is _64_unequal."""
    return {re.sub(r"\W+|^(?=\d)", "_", key): value for key, value in values.items()}


@cache
def _printed_by(command: str) -> Any:
    """Runs a command with this environment's programs. Returns the JSON value of its last line."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": programs}
    done = subprocess.run(  # noqa: S603 - the commands come from the list
        shlex.split(command), check=False, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise ValueError(f"{command}\nends with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
