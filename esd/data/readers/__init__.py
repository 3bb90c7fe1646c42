"""One file per source of samples."""
