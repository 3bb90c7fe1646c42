"""What runs: a job, its planner, its recovery, its submitter."""
