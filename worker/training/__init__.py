"""Tensors: the cached rows, their optimizers, and one training step."""
