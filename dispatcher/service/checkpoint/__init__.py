"""A job's checkpoints: taking them, keeping them on the parameter servers, and resuming from them."""
