"""Studies: many runs of forgetting, side by side."""
