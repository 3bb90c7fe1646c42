"""One client per service, used by everybody who calls it: users' programs, workers, the command and the tests."""
