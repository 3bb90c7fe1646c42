"""What a worker knows without tensors: which row is in which slot, and what its link carries."""
