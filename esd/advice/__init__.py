"""How a run trains fastest: the measurements, simulations and recommendations of `esd plan`."""
