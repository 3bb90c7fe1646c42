"""What a worker knows without tensors: which row is where, and how much a link may carry."""
