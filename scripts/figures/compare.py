"""Compares the numbers on a page with the output of the commands."""

from __future__ import annotations

from scripts.figures.entries import Figure
from scripts.figures.passage import Place, places
from scripts.figures.values import evaluate, values_of


def stale(figure: Figure, page: str) -> list[tuple[Place, str]]:
    """Measures a figure. Returns the stale places of the page with their new numbers.

    Raises:
        ValueError: the passage is not on the page, a command fails, or an expression has no value.
    """
    try:
        found = places(figure.text, page)
        names = {} if figure.by_hand else values_of(figure)
        values = [evaluate(place.expression, names, figure.value) for place in found]
    except ValueError as error:
        raise ValueError(f"{figure}: {error}") from error
    return [
        (place, place.written(value))
        for place, value in zip(found, values, strict=True)
        if not place.shows(value, figure.tolerance)
    ]
