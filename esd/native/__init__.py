"""Native kernels (C++17), one module per concern; sources in `native/`, numpy references in `tests/unit/native`."""
