"""References of 64 bits: values by the first bits of their digest, and a row of them."""

from __future__ import annotations

import numpy as np
import pytest

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.references import MOST_REFERRED_ROWS, key_of_digest, keys_of, references_to, rows_of


def test_a_reference_has_the_key_of_the_values_and_the_row() -> None:
    key, rows = key_of_digest(bytes.fromhex("fedcba9876")), np.array([0, 5, MOST_REFERRED_ROWS - 1])
    references = references_to(key, rows)
    assert key == 0xFEDCBA
    assert references[0] == 0xFEDCBA << 40
    assert keys_of(references).tolist() == [key] * 3
    assert rows_of(references).tolist() == rows.tolist()


def test_a_row_that_no_reference_has_room_for_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=f"row {MOST_REFERRED_ROWS} of a site's values cannot be referred to"):
        references_to(1, np.array([MOST_REFERRED_ROWS]))
