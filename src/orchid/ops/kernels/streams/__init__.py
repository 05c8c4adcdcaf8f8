"""The projected streams in time: what every path does with them before and after its transforms."""
