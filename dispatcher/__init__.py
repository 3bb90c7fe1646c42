"""The dispatcher: decides which worker trains which sample, and publishes push plans."""
