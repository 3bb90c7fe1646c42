"""A trained model is a folder: it is written here, loaded, and scores samples without torch."""
