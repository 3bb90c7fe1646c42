"""The page for people: what a dispatcher's job is doing, in a browser, live."""
