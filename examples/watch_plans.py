"""An observer of a job: counts the rows that each worker pushes for each other worker.

    python3 -m examples.watch_plans 127.0.0.1:50051

It begins with the next iteration that is planned, and ends with the job. Training does not wait for it.
"""

from __future__ import annotations

import argparse
from collections import Counter

import esd

_FOR_OTHERS = (esd.MoveReason.UPDATE_PUSH, esd.MoveReason.DIRECT_PUSH)


def main() -> None:
    """Watches the running job to its end, and prints the table."""
    parser = argparse.ArgumentParser(description="Counts the rows that workers push for each other.")
    parser.add_argument("dispatcher", help="host:port")
    options = parser.parse_args()
    with esd.DispatcherClient(options.dispatcher, credentials=esd.Credentials.load()) as dispatcher:
        for (sender, receiver), rows in sorted(pushes(dispatcher).items()):
            print(f"{sender} -> {receiver}: {rows} rows")


def pushes(dispatcher: esd.DispatcherClient, from_iteration: int | None = None) -> Counter[tuple[str, str]]:
    """Returns the number of rows that each worker pushes since another worker needs them, by the names of both."""
    state = dispatcher.describe()
    if state is None:
        raise SystemExit("the dispatcher has no job yet")
    counts: Counter[tuple[str, str]] = Counter()
    for plans in dispatcher.watch_plans(state.job.name, from_iteration):
        names = {worker.slot: worker.worker for worker in plans.workers}
        for worker in plans.workers:
            for moves in worker.moves:
                if moves.reason in _FOR_OTHERS:
                    for receiver, rows in moves.for_workers(names).items():
                        if receiver != worker.worker:  # which also pulls the sum of gradients that it has a part in
                            counts[worker.worker, receiver] += rows
    return counts


if __name__ == "__main__":
    main()
