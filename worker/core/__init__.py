"""The part of a worker without tensors: the book of cache slots, and the bandwidth of its link."""
