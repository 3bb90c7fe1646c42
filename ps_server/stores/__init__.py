"""Stores of tables: in memory, in memory with a checkpoint directory, and in Redis."""
