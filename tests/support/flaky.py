"""A call that fails a few times."""


class Flaky:
    """Fails with the given errors, then returns 7."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    async def call(self) -> int:
        if self.errors:
            raise self.errors.pop(0)
        return 7
