"""What can be seen in the source of workflows without running it."""
