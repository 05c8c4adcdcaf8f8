"""Tasks: the data, the loss and the metric of one experiment each."""
