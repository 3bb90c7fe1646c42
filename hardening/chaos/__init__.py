"""Faults in real runs, whose models are then compared with the model of an undisturbed run."""
