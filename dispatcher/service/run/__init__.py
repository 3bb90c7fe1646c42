"""What runs a job: workers' and clients' calls, the planning loop, checkpoints within it, and the way back."""
