"""A request, resolved: everything that forgetting needs, checked before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_fabric import Fabric
from torch import nn

from qunlearn.data import Request, Split, manifest, read_ids
from qunlearn.errors import UserError
from qunlearn.methods.base import Method, MethodConfig
from qunlearn.methods.find import find_method
from qunlearn.methods.forget import check_request, settings_of
from qunlearn.runs.batch import checked_day, checked_reference, with_requests_of
from qunlearn.runs.data import data_config, located
from qunlearn.runs.lines import RequestLine
from qunlearn.runs.metrics import metrics_of
from qunlearn.runs.model_file import Header, load
from qunlearn.runs.origin import recorded
from qunlearn.runs.provenance import TABLE, Provenance, request_of
from qunlearn.runs.recipe import check_start, inherited, recipe_of, within_budget
from qunlearn.runs.request import WAYS, ForgetConfig, RequestConfig
from qunlearn.store.layout import SPLIT
from qunlearn.store.run import Run
from qunlearn.training.devices import make_fabric


@dataclass(frozen=True, eq=False)
class Plan:
    """What is to be done.

    Attributes:
        config: The request, with current paths.
        origin: The run that is to forget.
        model: Its network.
        split: Its split, with the request.
        header: Metadata of the new model file.
        method: How it is to forget.
        settings: The method's settings, with defaults and inherited training settings.
        fabric: The devices.
        record: What `config.toml` will hold: what was asked, and its provenance.
    """

    config: ForgetConfig
    origin: Run
    model: nn.Module
    split: Split
    header: Header
    method: Method
    settings: MethodConfig
    fabric: Fabric
    record: Mapping[str, object]

    @property
    def forgets(self) -> bool:
        """Whether a trained sample is to be forgotten; if not, samples are only retired."""
        return bool(self.split.requests[-1].ids)


def plan_forgetting(config: ForgetConfig, out: Path, *, resume: bool = False) -> Plan:
    """Resolve a request for the folder `out`; raises whatever is wrong, and writes nothing.

    With `resume`, the request is read from `out`, if a run was begun there.
    """
    Run.check_free(out, resume)
    config, origin = _located(config, out)
    method, recipe = find_method(config.method), recipe_of(origin)
    usual = inherited(recipe, method, config.start_from is not None)
    values = usual | config.method_settings
    settings = settings_of(method, values)
    fabric = make_fabric(config)
    resumed = _interrupted_request(config, out) if resume else None
    joins = (config.where, config.metadata, config.requests)
    columns = resumed is None and any(each is not None for each in joins)
    data_values = data_config(origin, **config.changed)
    data, split_before = located(origin, data_values, config.data_path, columns=columns)
    split, lines = (
        _with_request(split_before, config)
        if resumed is None
        else (split_before.repeat(resumed), None)
    )
    if config.budget is not None:
        values |= {"steps": within_budget(config.budget, recipe, split, method, settings)}
        settings = settings_of(method, values)
    digest = request_digest(split)
    if config.record.request not in (None, digest):
        raise UserError(
            "The request now selects other samples than when this configuration was written: the "
            "list, the metadata or the run has changed; start a new run with --ids, --where or so."
        )
    model = load(origin.path, config.model)
    header = replace(Header.read(origin.model_path), split=split.to_json())
    provenance = Provenance(
        origin=origin.info.model_sha256,
        start=check_start(config, origin, split),
        request=digest,
        data=data,
        recipe=recipe,
        lines=config.record.lines if lines is None else lines or None,
    )
    in_tables = dict.fromkeys(("depth", "budget", "epochs", "seed", "data_path", "metadata"))
    record: dict[str, object] = config.model_copy(update={TABLE: None}).to_dict() | in_tables
    record |= {"settings": settings.to_dict(), TABLE: provenance.to_dict()}
    if split.requests[-1].ids:
        check_request(model, split, settings, config.processes)
    elif metrics_of(origin).before is not None:
        # Samples are only retired, so the weights are the previous ones.
        earlier = request_of(origin)
        record |= {"method": earlier.method, "settings": earlier.settings}
    return Plan(config, origin, model, split, header, method, settings, fabric, record)


def _located(config: ForgetConfig, out: Path) -> tuple[ForgetConfig, Run]:
    """The settings with the paths of now, and the run that is to forget."""
    origin = recorded(out, config.run, config.record.origin)
    start = config.start_from
    if start is not None and config.record.start:
        start = recorded(out, start, config.record.start).path
    for used in filter(None, (origin.path, start)):
        if out.resolve().is_relative_to(used.resolve()):
            raise UserError(
                f"The output {str(out)!r} is inside the run {str(used)!r}; name a folder beside it."
            )
    return config.model_copy(update={"run": origin.path, "start_from": start}), origin


def _interrupted_request(config: ForgetConfig, out: Path) -> Request | None:
    """The request recorded in an interrupted run, or None."""
    if not config.record.request or not (out / SPLIT).is_file():
        return None
    recorded_split = manifest.parse(Run(out).split)
    return recorded_split.requests[-1] if recorded_split.requests else None


def _with_request(split: Split, config: ForgetConfig) -> tuple[Split, tuple[RequestLine, ...]]:
    """The split with the request, and its lines for the ledger."""
    received, reference = config.received, config.reference
    received = None if received is None else checked_day(received, "received")
    reference = None if reference is None else checked_reference(reference, "reference")
    if config.requests is not None:
        conflicting = [flag for name, flag in WAYS.items() if getattr(config, name) is not None]
        conflicting += [
            f"--{n}" for n in ("received", "reference") if getattr(config, n) is not None
        ]
        if conflicting:
            raise UserError(
                "--requests says what to forget, and when it was asked; leave "
                f"{conflicting[0]} out."
            )
        return with_requests_of(split, config.requests)
    split = add_request(split, config)
    request = split.requests[-1]
    count = len(request.ids) + len(request.retired)
    line = RequestLine(count, reference, received)
    return split, (line,) if reference or received else ()


def add_request(split: Split, request: RequestConfig) -> Split:
    """The split with the request added."""
    flags = [flag for name, flag in WAYS.items() if getattr(request, name) is not None]
    if len(flags) != 1:
        problem = f"Conflicting flags: {', '.join(flags)}" if flags else "Say what to forget"
        hint = "" if flags else " A rule is not saved in files, since it may name a person."
        raise UserError(f"{problem}; give exactly one of {', '.join(WAYS.values())}.{hint}")
    if request.forget_seed is not None and request.random is None:
        raise UserError("--forget-seed goes with --random only; leave it out.")
    if request.column is not None and request.ids is None:
        raise UserError("--column goes with --ids only; leave it out.")
    if request.skip_unusable and request.ids is None:
        raise UserError("--skip-unusable goes with --ids only; leave it out.")
    if request.random is not None:
        return split.forget_random(request.random, request.forget_seed)
    if request.classes is not None:
        return split.forget_class(*request.classes)
    if request.ids is not None:
        names = read_ids(request.ids, request.column)
        return split.forget_ids(names, skip_unusable=request.skip_unusable)
    assert request.where is not None
    return split.forget_where(request.where)


def request_digest(split: Split) -> str:
    """The digest of the samples that the last request names."""
    request = split.requests[-1]
    names = "\n".join(request.ids)
    if request.retired:
        names = "\n".join((names, "", *request.retired))
    return hashlib.sha256(names.encode()).hexdigest()
