"""`qunlearn`: finds the command, runs it, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Annotated, NoReturn

import typer

from qunlearn import __version__
from qunlearn.characters import plain
from qunlearn.children import one_of_several
from qunlearn.cli.help import Command, Group
from qunlearn.cli.output import say, say_error
from qunlearn.errors import Failure, UserError, lacks_memory, unknown
from qunlearn.importing import leave_working_folder

GROUPS = {
    "See it work": {
        "demo": "See a 4-bit network forget, and the measurements that show it, in under a minute.",
    },
    "A network on record": {
        "init": "Write a commented settings file for your own data, from four answers.",
        "train": "Train a low-bit network and save it in a run folder.",
        "adopt": "Make a run from a model that was trained elsewhere.",
    },
    "Forget": {
        "forget": "Make a run's network forget samples, and save the new network.",
    },
    "Show that it did": {
        "evaluate": "Measure a run on every part of its split, and beside a retrained one.",
        "compare": "Compare methods of forgetting with Retrain, over several seeds.",
        "audit": "Look further for what a run still remembers.",
        "report": "Write a page that shows what a run or a comparison says.",
    },
    "Ship it": {
        "export": "Write a run's network as an ONNX file, and check that it computes the same.",
        "predict": "Name what is in images, with an exported ONNX file.",
    },
    "Close the request": {
        "erase": "Erase the samples that a run has forgotten from everything around it.",
        "keys": "Make a key pair that signs records.",
        "certify": "Write a signed record of what a run has forgotten, and of what was erased.",
        "verify": "Check a signed record, and say what it proves and what it only claims.",
        "ledger": "List every request to forget below a folder, when it is due, and how far it is.",
    },
    "Look things up": {
        "methods": "List the methods of forgetting, with their settings.",
        "explain": "Show where forgetting and retaining were in conflict.",
        "describe": "Show a run's layers, bits, scales and size.",
        "check": "Check that a run is complete and unaltered, and name what is not.",
        "reproduce": "Make the paper's tables again, and print ours beside the paper's.",
    },
}
"""The commands by what one wants, each with its summary; `--help` shows them in this order."""

COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}

BUG = (
    "This is a bug in qunlearn, not a mistake of yours. Please report it with the lines above and "
    "the command that you gave (CONTRIBUTING.md says where)."
)

COMPLETING = "_QUNLEARN_COMPLETE"
"""The environment variable through which a shell asks for completions."""

INTERRUPTED = 130
"""What typer makes of ctrl-C."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the process ends with 0, 1 (failed), 2 (asked wrongly) or 3.

    3: everything was done and written, but a target of `forget` was not met.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    leave_working_folder()
    with printing_plainly(), ending_as_by_ctrl_c():
        code = outcome(arguments)
    sys.exit(code)


def outcome(arguments: list[str]) -> int | None:
    """Run a command; its exit code, once what went wrong has been said."""
    code: int | None
    try:
        code = _run(arguments)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
    except UserError as error:
        code = _say(str(error), 2)
    except Failure as error:
        code = _say(str(error), 1)
    except KeyboardInterrupt:
        code = _say(
            "Interrupted; what was being made is not complete: give the same command again.", 1
        )
    except BrokenPipeError:
        # The reader went away, as `head` does; that is no error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:
        place = f"{str(error.filename)!r}: " if error.filename else ""
        code = _say(f"{place}{error.strerror or error}.", 1)
    except Exception as error:
        if lacks_memory(error):
            code = _say("There is not enough memory; use a smaller batch, data set or network.", 1)
        elif hasattr(error, "format_message"):  # typer's own, about the words of the call
            message = " ".join(error.format_message().split())
            hint = f"see `qunlearn {_named(arguments)}--help`"
            code = _say(f"{message.rstrip('.')}; {hint}.", 2) if message else 2
        else:
            code = _say_bug(error)
    return code


def _run(arguments: list[str]) -> int | None:
    """Run a command; of several processes that a launcher started, the first one does."""

    def command() -> int | None:
        code: int | None = application(arguments)(
            arguments, prog_name="qunlearn", standalone_mode=False
        )
        return code

    if not one_of_several(os.environ):
        return command()
    # Before torch is loaded, which prints traces of its own when a connection breaks.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from qunlearn.training.devices import follow_task
    from qunlearn.training.group import together

    with together(follow_task) as leads:
        return command() if leads else 0


@contextmanager
def ending_as_by_ctrl_c() -> Iterator[None]:
    """Within the block, SIGTERM and SIGHUP interrupt as ctrl-C does: what is saved stays so."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # which may not set them
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:  # one that is ignored, as by nohup, stays so
                signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def printing_plainly() -> Iterator[None]:
    """Within the block, warnings are printed without control characters."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda *words, **options: plain(usual(*words, **options))
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _say_bug(error: Exception) -> int:
    """Print the traceback of what no command expects, and ask to report it; the exit code."""
    say("".join(traceback.format_exception(error)).rstrip(), error=True)
    say(BUG, error=True)
    return 1


def application(arguments: list[str]) -> typer.Typer:
    """The application; only the module of the command that is called is loaded."""
    app = typer.Typer(
        cls=Group,
        help="Make a quantized network forget, show by measurement that it did, ship it.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback(invoke_without_command=True)(_root)
    words = arguments
    if COMPLETING in os.environ:
        words = words_to_complete()
    elif "--show-completion" in words or "--install-completion" in words:
        words = []
        if len(arguments) > 1:  # a word after these names a shell; else it is found out
            os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    called = next((word for word in words if not word.startswith("-")), None)
    if called is not None and called not in COMMANDS:
        raise unknown("command", called, COMMANDS)
    for group, commands in GROUPS.items():
        for name, summary in commands.items():
            if name == called:
                module = import_module(f"qunlearn.cli.{name}")
                if hasattr(module, "app"):  # a command with commands of its own
                    app.add_typer(module.app, name=name, rich_help_panel=group)
                else:
                    app.command(name, cls=Command, rich_help_panel=group)(module.command)
            else:
                app.command(name, cls=Command, help=summary, rich_help_panel=group)(lambda: None)
    return app


def words_to_complete() -> list[str]:
    """What stands on the line that a shell asks to complete; it asks by environment variables."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    # Of the last word only the beginning may be there, and it need not be a command.
    return [word for word in line.split()[1:] if word in COMMANDS]


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)
    ] = False,
) -> None:
    if version:
        say(f"qunlearn {__version__}")
        raise typer.Exit


def _named(arguments: list[str]) -> str:
    return f"{arguments[0]} " if arguments and arguments[0] in COMMANDS else ""


def _say(sentence: str, code: int) -> int:
    say_error(sentence)
    return code


if __name__ == "__main__":
    main()
