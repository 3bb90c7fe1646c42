"""The state of a worker reaches one that returns bit by bit, and leaves all others alone."""

from __future__ import annotations

import torch

from esd.services.domain.dense_roles import DenseRole
from esd.worker.training.returns import pass_state


class Recorded:
    """Sums of one worker: it notes the vectors, and puts given ones in the place of those that are wanted."""

    waiting = False
    wants = True

    def __init__(self, come=()):
        self.started = []
        self.waits = 0
        self._come = list(come)

    def begin(self, iteration):
        raise NotImplementedError

    def start(self, gradients, *, zeros=False):
        self.started.append((None if zeros else gradients.clone(), self.wants, len(gradients)))
        if self.wants:
            gradients.copy_(self._come.pop(0))

    def wait(self):
        self.waits += 1

    def close(self):
        raise NotImplementedError


def state(fill):
    """Zeros of either sign, values that are not finite, empty tensors, and all types that buffers may have."""
    odd = torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1e-45])
    first = torch.nn.Parameter(odd.view(5, 1) if fill else torch.ones(5, 1))
    rest = [
        torch.tensor(7.0),
        torch.zeros(0, 3),
        odd.double(),
        torch.tensor([2**40 + 1]),
        torch.tensor([3], dtype=torch.int32),
    ]
    return [first, *(each if fill else torch.ones_like(each) for each in rest)]


def bits(tensors):
    return [bytes(each.detach().numpy().tobytes()) for each in tensors]


def test_all_bits_arrive():
    giver, returning = Recorded(), state(fill=False)
    pass_state(state(fill=True), giver, DenseRole.GIVES)
    assert [wanted for _, wanted, _ in giver.started] == 5 * [False]
    taker = Recorded([vector for vector, *_ in giver.started])
    pass_state(returning, taker, DenseRole.RETURNS)
    assert bits(returning) == bits(state(fill=True))
    assert [(vector, length) for vector, _, length in taker.started] == [(None, each) for *_, each in giver.started]
    assert (giver.waits, taker.waits) == (0, 1)


def test_others_take_part_and_keep_their_state():
    for role in (DenseRole.TRAINS_ON, DenseRole.RESTS_ON):
        own, sums = state(fill=False), Recorded()
        pass_state(own, sums, role)
        assert bits(own) == bits(state(fill=False))
        assert [(vector, wanted) for vector, wanted, _ in sums.started] == 5 * [(None, False)]
        assert sums.waits == 0


def test_what_is_given_does_not_change_on_its_way():
    """A forward pass may change a buffer in place."""

    class Noted(Recorded):
        def start(self, gradients, *, zeros=False):
            self.started.append(gradients)

    given, sums = torch.zeros(3), Noted()
    pass_state([given], sums, DenseRole.GIVES)
    given.fill_(5)
    assert not sums.started[0].any()
