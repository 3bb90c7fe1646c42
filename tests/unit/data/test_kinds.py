"""A value of the wrong kind in a schema is named by field, with the right kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import esd

READ: dict[str, Any] = {"label": "clicked", "ids": ("user",)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: esd.Id(None), "column of esd.Id is None, it must be a text"),
        (lambda: esd.Id("user", 3), "table of esd.Id is 3, it must be a text or None"),
        (lambda: esd.IdList("last", max="3"), "max of esd.IdList is '3', it must be a whole number"),
        (lambda: esd.IdList("last", max=True), "max of esd.IdList is True, it must be a whole number"),
        (lambda: esd.TableOptions(dim="8"), "dim of esd.TableOptions is '8', it must be a whole number or None"),
        (
            lambda: esd.Schema(**READ | {"label": None}),
            "label of a schema is None, it must be a text or a tuple of texts",
        ),
        (
            lambda: esd.Schema(**READ | {"ids": None}),
            "ids of a schema is None, it must be a tuple of texts or esd.Id or esd.IdList",
        ),
        (lambda: esd.Schema(**READ, dense=(3,)), "dense of a schema is (3,), it must be a tuple of texts"),
        (
            lambda: esd.Schema(**READ, crosses=(3,)),
            "crosses of a schema is (3,), it must be a tuple of tuples of texts",
        ),
        (
            lambda: esd.Schema(**READ, label_range=3),
            "label_range of a schema is 3, it must be a tuple of 2 numbers or None",
        ),
        (lambda: esd.Schema(**READ, label_range=(0, 1, 2)), "it must be a tuple of 2 numbers or None"),
        (
            lambda: esd.Schema(**READ, missing={"user": None}),
            "missing of a schema is {'user': None}, it must be a mapping of texts to texts or numbers",
        ),
        (
            lambda: esd.Schema(**READ, tables={"item": 3}),
            "tables of a schema is {'item': 3}, it must be a mapping of texts to esd.TableOptions",
        ),
    ],
)
def test_a_value_of_another_kind_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(esd.errors.InvalidArgument) as refused:
        make()
    assert message in str(refused.value)


def test_lists_and_numbers_of_numpy_are_taken() -> None:
    esd.IdList("last", max=np.int64(3))
    esd.Schema(label=["clicked"], ids=["user"], label_range=[0, np.float32(5)])
