"""What the parameter server means, apart from how it is stored and reached."""
