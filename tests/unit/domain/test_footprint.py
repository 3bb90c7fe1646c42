from esd.services.domain.footprint import Footprint


def test_rows_that_fit_are_what_samples_leave() -> None:
    footprint = Footprint(
        fixed_bytes=1000, row_bytes=10, sample_bytes=100, step_seconds=0, sample_seconds=0, dense_shapes=()
    )
    assert [footprint.cache_rows(2000, samples) for samples in (0, 5, 10, 20)] == [100, 50, 0, -100]
