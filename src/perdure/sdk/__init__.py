"""What applications import: tasks, their context, and the client that enqueues them and waits for their results."""
