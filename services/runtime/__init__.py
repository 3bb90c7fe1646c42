"""The foundation of every service process: gRPC server and channel, settings, errors, metrics, logs."""
