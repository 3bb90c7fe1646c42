"""The sizes of cache and batch: SCARS' equations, extended to several workers, and a search."""
