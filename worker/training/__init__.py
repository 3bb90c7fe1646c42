"""The part of a worker with tensors: the row cache, the optimizers, the all-reduce and the training step."""
