"""Faults in real runs, and whether the model is still that of an undisturbed one."""
