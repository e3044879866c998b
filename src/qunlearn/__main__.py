"""`python -m qunlearn`, the same as `qunlearn`."""

from qunlearn.cli.main import main

if __name__ == "__main__":
    main()
