"""The shared part of all services: vocabulary, codecs, runtime and clients."""
