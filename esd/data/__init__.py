"""Readers of sample streams: every source of training samples behind one interface."""

from esd.data.dataset import Dataset
from esd.data.distinct import count_distinct
from esd.data.opening import open_data

__all__ = ["Dataset", "count_distinct", "open_data"]
