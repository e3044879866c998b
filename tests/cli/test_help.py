"""The help by what one wants, and completion in the shell."""

import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest

from qunlearn.cli.main import COMMANDS, GROUPS


def test_help_groups_the_commands_by_what_one_wants(qunlearn):
    shown = qunlearn("--help")[1]
    places = [shown.index(f"─ {group} ─") for group in GROUPS]
    assert places == sorted(places)
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)
    for (group, commands), start, end in zip(
        GROUPS.items(), places, [*places[1:], len(shown)], strict=True
    ):
        for name in commands:
            assert f"│ {name} " in shown[start:end], (group, name)


@pytest.mark.parametrize("words", [(), ("forget",), ("keys",), ("keys", "new"), ("audit", "all")])
def test_a_flag_that_takes_no_value_is_shown_with_none(qunlearn, words):
    shown = qunlearn(*words, "--help")[1]
    assert re.search(r"--help +Show this message", shown)
    assert "bool" not in shown


@pytest.mark.parametrize("words", [("forget",), ("compare",), ("audit", "relearn")])
def test_paragraphs_are_wrapped_once_by_the_terminals_width(qunlearn, words):
    """Lines of the docstring were kept as well, so that every second line was a short one."""
    lines = [line.strip() for line in qunlearn(*words, "--help")[1].splitlines()]
    text = lines[: next(i for i, line in enumerate(lines) if line.startswith("Examples"))]
    assert all(len(line) > 60 for line, after in pairwise(text) if line and after)


def started(*words, **environment):
    """A command in a process of its own."""
    call = [sys.executable, "-c", "from qunlearn.cli.main import main; main()", *words]
    env = os.environ | environment
    return subprocess.run(call, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "offered", "not_offered"),
    [
        ("qunlearn e", {"evaluate", "export", "erase", "explain"}, {"train"}),
        ("qunlearn forget --ra", {"--random"}, {"--class"}),
        ("qunlearn keys n", {"new"}, {"forget"}),
    ],
)
def test_bash_completes_commands_and_flags(line, offered, not_offered):
    at = str(len(line.split()) - 1)
    words = started(
        _QUNLEARN_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=at
    ).stdout.split()
    assert offered <= set(words)
    assert not not_offered & set(words)


def test_zsh_completes_with_what_each_means():
    asked = {"_QUNLEARN_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "qunlearn report --ima"}
    assert '"--image":"Show the image of one forgotten sample' in started(**asked).stdout


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o default -F _qunlearn_completion qunlearn"),
        ("zsh", "compdef _qunlearn_completion qunlearn"),
    ],
)
def test_the_script_is_shown_for_the_shell_that_is_named(shell, line):
    done = started("--show-completion", shell)
    assert done.returncode == 0, done.stderr
    assert line in done.stdout


def test_a_shell_that_is_unknown_is_refused():
    done = started("--show-completion", "tcl")
    assert done.returncode == 2
    assert "tcl" in done.stderr
