"""What all services share: vocabulary, codecs, runtime and clients."""
