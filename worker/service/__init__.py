"""The running worker: its link, its clients and the loop that follows the plan."""
