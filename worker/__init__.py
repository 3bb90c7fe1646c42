"""The worker trains the samples that it is given on cached embedding rows, and obeys the plan."""
