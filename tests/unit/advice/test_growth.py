import numpy as np
import pytest

from esd.advice.growth import Growth

SAMPLES = np.array([100, 200, 400, 800, 1600], np.int64)


def grown(*exponents: float) -> Growth:
    """Tables of 50 rows after 100 samples that follow Heaps' law with these exponents."""
    return Growth(SAMPLES, np.stack([50 * (SAMPLES / 100) ** each for each in exponents], axis=1))


def test_tables_grow_on_as_the_second_half_of_the_samples_did() -> None:
    growth = grown(0.0, 0.5, 1.0)
    assert growth.after(6400).tolist() == pytest.approx([50, 400, 3200])
    assert growth.after(1600).tolist() == pytest.approx([50, 200, 800])
    assert growth.after(300).tolist() == pytest.approx([50, (50 * 2**0.5 + 100) / 2, 150])
    assert growth.after(50).tolist() == pytest.approx([25, 25, 25])


def test_no_table_grows_by_more_than_its_samples_bring() -> None:
    assert grown(1.7).after(3200)[0] == pytest.approx(2 * 50 * 16**1.7)


@pytest.mark.parametrize("rows", [10, 60, 150, 199, 300, 5000])
def test_the_samples_for_rows_are_the_inverse(rows: float) -> None:
    growth = grown(0.5)
    assert growth.after(growth.samples_for(rows)).sum() == pytest.approx(rows)


def test_a_table_that_has_stopped_growing_never_has_more_rows() -> None:
    assert grown(0.0).samples_for(51) == np.inf
    assert Growth(SAMPLES[:1], np.array([[0.0]])).samples_for(1) == np.inf


def test_one_look_does_not_show_that_growth_slows_down() -> None:
    assert Growth(SAMPLES[:1], np.array([[40.0]])).after(300).tolist() == pytest.approx([120])
