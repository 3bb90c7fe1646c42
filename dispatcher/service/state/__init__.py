"""What a running job knows: plain state that the modules of `run` read and change."""
