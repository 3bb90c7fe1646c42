"""The worker: trains the samples it is given on cached embedding rows and obeys the plan."""
