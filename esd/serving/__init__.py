"""A model's folder as a service: the Open Inference Protocol over gRPC and REST."""
