"""How a run trains fastest: what `esd plan` measures, simulates and recommends."""
