"""Lanes: one connection over several, so that a lost packet costs no round trip.

A near end beside the workers of a site is the proxy of their gRPC connections, and a far end beside the services passes
them on. Between both, the bytes of a connection travel in groups of blocks, each over another lane, and a further block
of each group, the exclusive or of the others, makes up for any one that comes late.
"""
