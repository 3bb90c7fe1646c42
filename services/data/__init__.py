"""Readers of sample streams: every source of training samples behind one interface."""

from services.data.dataset import Dataset, open_data
from services.data.distinct import count_distinct

__all__ = ["Dataset", "count_distinct", "open_data"]
