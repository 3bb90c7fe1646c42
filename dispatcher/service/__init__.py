"""The dispatcher as a gRPC service: one job, its workers, its sample stream and its published plans."""
