"""The page for browsers: the live state of a dispatcher's job."""
