"""The rules of the parameter server, independent of its stores and of gRPC."""
