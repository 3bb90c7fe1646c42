"""Running a job: the calls of workers and clients, the planning loop, checkpoints within it, and recovery."""
