"""The running worker: its part in a job, its transfers, and the loop that follows the plan."""
