"""Equal workloads sum to the batch, and are of as many workers as there are."""

import pytest

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import equal_workloads


def test_what_is_left_goes_to_the_first() -> None:
    assert equal_workloads(8, 3) == (3, 3, 2)
    assert equal_workloads(1, 2) == (1, 0)


@pytest.mark.parametrize(("batch_size", "workers", "said"), [(8, 0, "workers is 0"), (-1, 2, "batch_size is -1")])
def test_what_cannot_be_shared_out_is_refused(batch_size: int, workers: int, said: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{said}, it must be at least"):
        equal_workloads(batch_size, workers)
