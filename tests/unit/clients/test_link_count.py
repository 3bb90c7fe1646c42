"""The count of a link includes packet headers, by a formula that the benchmark of cards compares with the kernel."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from esd.services.clients.link_count import LinkCount
from esd.services.domain.framing import framing_bytes
from esd.services.domain.reports import TransferCounts


@pytest.mark.parametrize(
    ("size", "frames", "segments"),
    [(0, 1, 1), (1434, 1, 1), (1435, 1, 2), (16_379, 1, 12), (16_380, 2, 12), (1 << 20, 65, 725)],
)
def test_a_message_gets_a_prefix_a_header_for_each_frame_and_headers_for_each_packet(size, frames, segments):
    assert framing_bytes(size) == 5 + 9 * frames + 66 * segments


def test_bytes_are_counted_once_by_kind_and_direction():
    count = LinkCount()
    count.sent(rows=300, gradients=100)  # one message
    count.received(plans=50)
    count.received(plans=50)
    assert count.take() == TransferCounts(
        link_rows_up=300,
        link_gradients_up=100,
        link_framing_up=80,
        link_plans_down=100,
        link_framing_down=160,
    )
    assert count.take() == TransferCounts()


def test_several_threads_count_on_one_link():
    count = LinkCount()
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: count.sent(dense=3), range(4000)))
    assert count.take().link_dense_up == 12_000
