"""What all services share: vocabulary, runtime, data readers and the `esd` command."""
