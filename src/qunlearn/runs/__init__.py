"""From a request to a run folder: train, adopt, forget, evaluate, check."""
