"""Subcommands that are imported when they are called: `esd --help` and `esd status` need not load all of them."""

from __future__ import annotations

from collections.abc import Container, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group


class LateGroup(TyperGroup):
    """A group that knows its subcommands by names and help lines, and imports the one that is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Returns the name of the subcommand that is called, the subcommand, and its arguments."""
        name, known, rest = super().resolve_command(ctx, args)
        return name, known if name is None or known is None else load(name), rest


def add_late(app: typer.Typer, lines: Mapping[str, str], hidden: Container[str] = ()) -> None:
    """Adds subcommands that are not imported yet to an app of the class LateGroup, each with its line in the help.

    Args:
        app: the app.
        lines: the lines by the names of the subcommands.
        hidden: names of subcommands that the help leaves out.
    """
    for name, line in lines.items():
        app.command(name, help=line, hidden=name in hidden)(_placeholder)


def load(name: str) -> Any:
    """Imports the file of a subcommand, which has a function `command`, or further subcommands as `app`.

    Returns the subcommand as typer's commands and groups are.
    """
    module = import_module(f"esd.cli.{name}")
    holder = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    if hasattr(module, "app"):
        holder.add_typer(module.app, name=name)
    else:
        holder.command(name, context_settings=getattr(module, "CONTEXT_SETTINGS", None))(module.command)
    return get_group(holder).commands[name]


def _placeholder() -> None:
    """Stands for a subcommand; LateGroup puts the subcommand in its place before anything is called."""
