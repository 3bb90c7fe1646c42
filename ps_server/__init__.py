"""The parameter server: versioned embedding rows."""
