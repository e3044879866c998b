"""`qunlearn forget`."""

from __future__ import annotations

from qunlearn.cli.output import print_run
from qunlearn.cli.settings import Json, OutFolder, Resume, with_settings
from qunlearn.runs.request import ForgetConfig
from qunlearn.store.files import as_written


@with_settings(ForgetConfig)
def command(
    settings: ForgetConfig,
    out: OutFolder = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Make a run's network forget samples, and keep the new network.

    The run itself is not changed. A run that has forgotten can be made to forget more: what was
    forgotten earlier is never trained on again, and every evaluation goes on reporting it.

    Examples:
      qunlearn forget runs/original --random 0.1 --out runs/forgotten

      qunlearn forget runs/original --class 3 --method oeu --set alpha=0.5 --out runs/no-threes

      qunlearn forget runs/forgotten --ids more.csv --method ft --epochs 5 --out runs/second

      qunlearn forget runs/original --where "user == 42" --metadata people.csv --out runs/no-42

      qunlearn forget --resume --out runs/no-42
    """
    from qunlearn.runs.forget import forget_run
    from qunlearn.runs.origin import WEIGHTS_OF

    assert out is not None  # with_settings has seen to it
    run = forget_run(settings, out, resume=resume)
    with as_written(run.path):  # which may have been finished elsewhere
        if WEIGHTS_OF in run.info:
            title = f"{run.path}: weights unchanged"
        else:
            seconds = run.info["seconds"]["forgetting"]
            title = f"{run.path}: {run.info['method']} ({seconds:.0f} s)"
        print_run(run, json, title)
