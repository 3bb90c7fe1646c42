"""A job's checkpoints: taken, kept by the parameter servers, resumed from."""
