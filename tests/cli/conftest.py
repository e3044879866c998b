import pytest

from qunlearn.cli.main import main


@pytest.fixture
def qunlearn(capsys):
    """Calls the command line in this process: exit code, standard output, standard error."""

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        output = capsys.readouterr()
        return stop.value.code or 0, output.out, output.err

    return call
