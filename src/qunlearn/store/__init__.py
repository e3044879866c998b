"""The run folder and every other write. The only room that writes to disk."""
