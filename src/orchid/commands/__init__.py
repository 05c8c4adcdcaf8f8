"""What commands do with recipes and finished runs: several trainings, evaluation, the demo, export."""
