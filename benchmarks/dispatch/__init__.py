"""How good and how fast dispatch is: costs, makespans and decision times, and the bars that they must meet.

`esd bench dispatch` runs it.
"""
