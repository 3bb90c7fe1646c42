"""Values of tensors from raw bytes, JSON and typed contents: equal for all, and wrong ones are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from esd.protos import inference_pb2
from esd.services.domain.errors import InvalidArgument
from esd.serving.tensors import Described

CONTENTS = inference_pb2.InferTensorContents


@pytest.mark.parametrize(
    ("datatype", "dtype", "field", "values"),
    [
        ("BOOL", np.bool_, "bool_contents", [True, False]),
        ("INT8", np.int8, "int_contents", [-128, 127]),
        ("INT64", np.int64, "int64_contents", [-(2**63), 2**63 - 1]),
        ("UINT8", np.uint8, "uint_contents", [0, 255]),
        ("UINT64", np.uint64, "uint64_contents", [0, 2**64 - 1]),
        ("FP32", np.float32, "fp32_contents", [0.5, -1.25]),
        ("FP64", np.float64, "fp64_contents", [0.1, 1e300]),
    ],
)
def test_numbers_are_equal_in_every_form(datatype: str, dtype: Any, field: str, values: list[Any]) -> None:
    described = Described("x", datatype, (2, 1))
    expected = np.array(values, dtype)
    for tensor in (
        described.of_raw(expected.tobytes()),
        described.of_list(values),
        described.of_list([[each] for each in values]),
        described.of_contents(CONTENTS(**{field: values})),
    ):
        assert tensor.values.dtype == dtype
        np.testing.assert_array_equal(tensor.values, expected)


def test_texts_are_equal_in_every_form() -> None:
    texts = ["", "grün", "b" * 300]
    raw = b"".join(len(each.encode()).to_bytes(4, "little") + each.encode() for each in texts)
    described = Described("x", "BYTES", (3,))
    expected = [each.encode() for each in texts]
    assert described.of_raw(raw).values == expected
    assert described.of_list(texts).values == expected
    assert described.of_contents(CONTENTS(bytes_contents=expected)).values == expected


@pytest.mark.parametrize(
    ("datatype", "data", "message"),
    [
        ("INT8", [1, 128], "input 'x' has a value beyond the range of INT8"),
        ("UINT64", [1, -1], "input 'x' has a value beyond the range of UINT64"),
        ("UINT64", [1, 2**64], "input 'x' has a value beyond the range of UINT64"),
        ("INT32", [1, 1.5], "input 'x' has the value 1.5, INT32 takes whole numbers"),
        ("INT32", [1, True], "input 'x' has the value True, INT32 takes whole numbers"),
        ("FP32", [1, "2"], "input 'x' has the value '2', FP32 takes numbers"),
        ("FP32", [1, None], "input 'x' has the value None, FP32 takes numbers"),
        ("BYTES", ["a", 5], "input 'x' has the value 5, BYTES takes texts"),
        ("BOOL", [True, 1], "input 'x' has the value 1, BOOL takes true and false"),
        ("FP32", [1], r"input 'x' has 1 values, and the shape \[2\] has 2"),
        ("FP32", [[1], [2]], r"input 'x' has the value \[1\], FP32 takes numbers"),
    ],
)
def test_wrong_values_of_json_are_named(datatype: str, data: list[Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Described("x", datatype, (2,)).of_list(data)


@pytest.mark.parametrize(
    ("datatype", "shape", "message"),
    [
        ("FLOAT", (2,), "input 'x' has the datatype 'FLOAT'; choose from BOOL, INT8, "),
        ("FP32", (), "input 'x' has 0 dimensions, it must have 1..8"),
        ("FP32", (2, -1), r"input 'x' has the shape \[2, -1\], no dimension may be negative"),
    ],
)
def test_wrong_descriptions_are_named(datatype: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Described("x", datatype, shape)


@pytest.mark.parametrize("raw", [b"", b"\x01\x00\x00\x00", b"\xff\xff\xff\xffab", b"\x01\x00\x00\x00ab\x00\x00"])
def test_texts_that_do_not_fit_their_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidArgument, match="which are not 2 texts with their lengths before them"):
        Described("x", "BYTES", (2,)).of_raw(raw)


def test_contents_of_another_type_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="has values in fp64_contents, those of FP32 are in fp32_contents"):
        Described("x", "FP32", (1,)).of_contents(CONTENTS(fp64_contents=[1.0]))
    with pytest.raises(InvalidArgument, match="FP16 has no typed contents: send raw_input_contents"):
        Described("x", "FP16", (1,)).of_contents(CONTENTS(fp32_contents=[1.0]))
