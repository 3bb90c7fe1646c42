"""The parameter server's gRPC service."""
