"""The dispatcher: assigns samples to workers, and publishes the plans of their transfers."""
