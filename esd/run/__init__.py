"""The library that trains: options, samples, a cluster of local processes, a driver, evaluation and export."""
