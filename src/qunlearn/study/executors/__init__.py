"""Where the cells of a study are made: one file for each executor, registered in `open.py`."""
