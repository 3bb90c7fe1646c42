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
        (lambda: esd.Id("user", 3), "table of esd.Id is 3, it must be a text"),
        (lambda: esd.IdList("last", max="3"), "max of esd.IdList is '3', it must be a whole number"),
        (lambda: esd.IdList("last", max=True), "max of esd.IdList is True, it must be a whole number"),
        (lambda: esd.TableOptions(dim="8"), "dim of esd.TableOptions is '8', it must be a whole number"),
        (
            lambda: esd.Schema(**READ | {"label": None}),
            "label of a schema is None, it must be the name of a column, or a list of names",
        ),
        (
            lambda: esd.Schema(**READ | {"ids": None}),
            "ids of a schema is None, it must be a list",
        ),
        (lambda: esd.Schema(**READ, dense=(3,)), "dense of a schema has 3, it must be a text"),
        (
            lambda: esd.Schema(**READ, crosses=(3,)),
            "crosses of a schema has 3, it must be a list",
        ),
        (lambda: esd.Schema("y", "user"), "ids of a schema is 'user', it must be a list: ['user']"),
        (lambda: esd.Schema(**READ, dense={"a"}), "dense of a schema is {'a'}, it must be a list"),
        (lambda: esd.Schema("y", ("user", 3)), "ids of a schema has 3, it must be the name of a column, an esd.Id or"),
        (lambda: esd.Schema(**READ, denes=("a",)), "there is no key 'denes'; did you mean 'dense'?"),
        (lambda: esd.Schema(ids=("user",)), "the key 'label' is missing"),
        (
            lambda: esd.Schema(**READ, label_range=3),
            "label_range of a schema is 3, it must be a list of two: the least and the largest",
        ),
        (
            lambda: esd.Schema(**READ, label_range=(0, 1, 2)),
            "label_range of a schema is (0, 1, 2), it must be a list of two",
        ),
        (
            lambda: esd.Schema(**READ, missing={"user": None}),
            "missing.user of a schema is None, it must be a text or a number",
        ),
        (
            lambda: esd.Schema(**READ, tables={"item": 3}),
            "tables.item of a schema is 3, it must be keys with values",
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
