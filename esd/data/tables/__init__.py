"""Data of one's own: Parquet, Arrow and CSV files, and frames, whose columns a schema names. Needs pyarrow."""

from esd.data.tables.dataset import FrameDataset, TableDataset
from esd.data.tables.proposal import propose

__all__ = ["FrameDataset", "TableDataset", "propose"]
