"""A worker in a few lines of `import esd` and numpy: it follows its plans and trains nothing.

    python3 -m examples.own_worker 127.0.0.1:50051 edge-1

It shows the protocol below `esd.Session`, for a trainer in another framework than torch, or for a look at the decisions
of a dispatcher: it predicts one half for every sample and reports that it has moved the rows of its plans. A training
loop in torch is examples/own_loop.py.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os

import numpy as np

import esd


def main() -> None:
    """Takes part in one job."""
    parser = argparse.ArgumentParser(description="Takes part in one job without training.")
    parser.add_argument("dispatcher", help="host:port")
    parser.add_argument("name", help="unique among the workers of the job")
    options = parser.parse_args()
    with esd.DispatcherClient(options.dispatcher, credentials=esd.Credentials.load()) as dispatcher:
        print(f"{work(dispatcher, options.name)} iterations")


def work(dispatcher: esd.DispatcherClient, name: str) -> int:
    """Waits for a job, follows it to its end and returns its number of iterations."""
    # No call goes to this address. It distinguishes a restarted worker of this name, as a new port would.
    here = f"{name}:{os.getpid()}"
    me = esd.Registration(name, bandwidth=1e6, cache_rows=100, address=here)
    lease = dispatcher.register(me, wait_for_job=60.0)
    while True:
        try:
            return follow_plans(dispatcher, lease)
        except esd.errors.StaleEpoch:
            continue  # the next epoch begins at the last checkpoint


def follow_plans(dispatcher: esd.DispatcherClient, lease: esd.Lease) -> int:
    """Carries out the plans of one epoch. Returns the iterations of the job, which ends in this epoch.

    Raises:
        StaleEpoch: another epoch follows, since a worker was lost or has joined.
    """
    iterations = 0
    with dispatcher.attend(lease) as attendance:  # which keeps the lease alive
        for message in attendance:
            match message:
                case esd.Membership():
                    membership = message
                case esd.Reload():
                    pass  # the epoch begins at a checkpoint: a worker with a cache and a model takes them back to it
                case esd.IterationPlan():
                    attendance.report(carried_out(message))
                case esd.FlushPlan():
                    if membership.job.takes_checkpoints and message.iteration:
                        asyncio.run(cut(membership, message))
                    pushed = esd.TransferCounts(flush_push=len(message.rows) + len(message.gradients))
                    attendance.report(esd.FlushReport(message.iteration, pushed, message.epoch))
                case esd.EndOfStream():
                    iterations = message.iterations
    return iterations


async def cut(membership: esd.Membership, plan: esd.FlushPlan) -> None:
    """Tells every parameter server, for every table, that this worker owes nothing: so a checkpoint can be taken."""
    job = membership.job
    for address in job.parameter_servers:
        async with esd.ParameterServerConnection(address, credentials=esd.Credentials.load()) as server:
            for table in job.tables:
                checkpoints = esd.CheckpointClient(server, table)
                await checkpoints.cut(plan.iteration, membership.slot, membership.members, epoch=plan.epoch)


def carried_out(plan: esd.IterationPlan) -> esd.IterationReport:
    """Returns the report of a worker that predicts one half for every sample."""
    samples = len(plan.labels)
    return esd.IterationReport(
        iteration=plan.iteration,
        loss_sum=samples * math.log(2),
        score_bins=np.full(plan.labels.shape, 32768, np.uint16),
        labels=plan.labels.astype(np.uint8),
        transfers=esd.TransferCounts(
            miss_pull=len(plan.pulls),
            update_push=len(plan.update_rows) + len(plan.update_gradients),
            evict_push=len(plan.evict_rows) + len(plan.evict_gradients),
        ),
        phases=esd.PhaseTimes(),
        seconds=0.0,
        epoch=plan.epoch,
    )


if __name__ == "__main__":
    main()
