"""What every service process is built on: gRPC server and channel, settings, errors, metrics, logs."""
