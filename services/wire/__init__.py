"""Codecs between the vocabulary (`esd.services.domain`) and the contract (`esd.protos`).

Decoding checks everything a message says about itself, so that services can trust the result: lengths,
shapes, ranges, enums. Every mistake is an InvalidArgument that names the field.
"""
