"""What a running job knows. The modules of `run` read and change it; nothing in here acts on its own."""
