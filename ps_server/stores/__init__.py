"""The stores that keep tables: this process's memory, with or without a checkpoint directory, and Redis."""
