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
from qunlearn.cli.output import say, say_error
from qunlearn.errors import Failure, UserError, unknown
from qunlearn.importing import leave_working_folder

COMMANDS = {
    "train": "Train a low-bit network and save it in a run folder.",
    "adopt": "Make a run from a model that was trained elsewhere.",
    "forget": "Make a run's network forget samples, and save the new network.",
    "compare": "Compare methods of forgetting with Retrain, over several seeds.",
    "reproduce": "Make the paper's tables again, and print ours beside the paper's.",
    "report": "Write a page that shows what a run or a comparison says.",
    "methods": "List the methods of forgetting, with their settings.",
    "explain": "Show where forgetting and retaining were in conflict.",
    "evaluate": "Measure a run on every part of its split, and beside a retrained one.",
    "audit": "Look further for what a run still remembers.",
    "export": "Write a run's network as an ONNX file, and check that it computes the same.",
    "predict": "Name what is in images, with an exported ONNX file.",
    "erase": "Erase the samples that a run has forgotten from everything around it.",
    "keys": "Make a key pair that signs records.",
    "certify": "Write a signed record of what a run has forgotten, and of what was erased.",
    "verify": "Check a signed record, and say what it proves and what it only claims.",
    "ledger": "List every request to forget below a folder, when it is due, and how far it is.",
    "check": "Check that a run is complete and unaltered, and name what is not.",
    "describe": "Show a run's layers, bits, scales and size.",
    "demo": "See it work on embedded data, in about a minute.",
}

BUG = (
    "This is a bug in qunlearn, not a mistake of yours. Please report it with the lines above and "
    "the command that you gave (CONTRIBUTING.md says where)."
)

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
    try:
        code: int | None = application(arguments)(arguments, standalone_mode=False)
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
        if _lacks_memory(error):
            code = _say("There is not enough memory; use a smaller batch, data set or network.", 1)
        elif hasattr(error, "format_message"):  # typer's own, about the words of the call
            message = " ".join(error.format_message().split())
            hint = f"see `qunlearn {_named(arguments)}--help`"
            code = _say(f"{message.rstrip('.')}; {hint}.", 2) if message else 2
        else:
            code = _say_bug(error)
    return code


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
    warnings.formatwarning = lambda *words, **more: plain(usual(*words, **more))
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _say_bug(error: Exception) -> int:
    """Print the traceback of what no command expects, and ask to report it; the exit code."""
    say("".join(traceback.format_exception(error)).rstrip(), error=True)
    say(BUG, error=True)
    return 1


def _lacks_memory(error: Exception) -> bool:
    """Whether Python, or torch on a processor or a GPU, could not get the memory it wanted."""
    told = isinstance(error, RuntimeError) and str(error)
    return isinstance(error, MemoryError) or bool(
        told and ("can't allocate memory" in told or "out of memory" in told)
    )


def application(arguments: list[str]) -> typer.Typer:
    """The application; only the module of the command that is called is loaded."""
    app = typer.Typer(
        help="Make a quantized network forget, show by measurement that it did, ship it.",
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    app.callback(invoke_without_command=True)(_root)
    called = next((word for word in arguments if not word.startswith("-")), None)
    if called is not None and called not in COMMANDS:
        raise unknown("command", called, COMMANDS)
    for name, summary in COMMANDS.items():
        if name == called:
            module = import_module(f"qunlearn.cli.{name}")
            if hasattr(module, "app"):  # a command with commands of its own
                app.add_typer(module.app, name=name)
            else:
                app.command(name)(module.command)
        else:
            app.command(name, help=summary)(lambda: None)
    return app


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
