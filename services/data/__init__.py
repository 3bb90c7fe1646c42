"""Readers of sample streams: every source of training samples behind one interface."""

from services.data.dataset import Dataset
from services.data.distinct import count_distinct
from services.data.opening import open_data

__all__ = ["Dataset", "count_distinct", "open_data"]
