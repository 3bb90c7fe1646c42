"""Codecs between the vocabulary (`esd.services.domain`) and the contract (`esd.protos`).

Decoding checks all properties of a message that follow from the message alone (lengths, shapes, ranges, enums), so that
services can trust the result. Every violation is an InvalidArgument that names the field.
"""
