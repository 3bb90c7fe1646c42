"""One client per service, shared by users' programs, workers, the command and the tests."""
