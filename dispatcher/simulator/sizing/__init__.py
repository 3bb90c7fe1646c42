"""How large a cache and a batch should be: SCARS' equations, for several workers, and a search."""
