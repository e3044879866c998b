"""Loading a data set by its name or path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from qunlearn.data.dataset import ImageData
from qunlearn.data.mapped import made_by
from qunlearn.data.sources import SourceOptions, sources
from qunlearn.data.sources.registry import GIB
from qunlearn.errors import UserError, unknown
from qunlearn.store.cache import default_cache_dir


def load_dataset(
    name_or_path: str,
    *,
    data_dir: Path | None = None,
    subset: int | None = None,
    subset_seed: int = 0,
    download: bool = False,
    metadata: Path | None = None,
    cache_dir: Path | None = None,
    memory_budget: int = GIB,
    image_size: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> ImageData:
    """Load a data set.

    Args:
        name_or_path: A known name (`digits`, `cifar10`, ...), or the path of a folder of images or
            of an `.npz` file.
        data_dir: The folder that has the files of a named data set.
        subset: Use only this many training samples, equally many of each class.
        subset_seed: Determines which samples the subset has.
        download: Download missing files from their official address.
        metadata: A CSV file with a column `id`, joined to the samples.
        cache_dir: Folder for downloads without a `data_dir`, and for decoded images that exceed
            the memory budget; by default `qunlearn` in the user's cache folder.
        memory_budget: Decoded bytes up to which the images are held in memory; larger sets are
            mapped from a cache that is written once.
        image_size: Resize the images of a folder to this many pixels; otherwise all must agree.
        progress: Called during a download with the bytes so far and in all (None if unknown).

    >>> digits = load_dataset("digits", subset=500)
    >>> len(digits), int((~digits.is_test).sum()), digits.images.dtype
    (950, 500, torch.uint8)
    """
    if image_size is not None and (name_or_path in sources and name_or_path != "folder"):
        raise UserError(f"{name_or_path!r} has images of one size; --image-size is for folders.")
    name, place = find_source(str(name_or_path), None if data_dir is None else Path(data_dir))
    options = SourceOptions(
        data_dir=place,
        cache_dir=default_cache_dir() if cache_dir is None else Path(cache_dir),
        download=download,
        memory_budget=memory_budget,
        subset=subset,
        subset_seed=subset_seed,
        image_size=image_size,
        progress=progress,
    )
    data = sources[name](options)
    made_by(data.images, name, replace(options, progress=None, download=False))
    if metadata is not None:
        data = data.join(metadata)
    if subset not in (None, int((~data.is_test).sum())):  # the source did not apply it
        data = data.subset(subset, subset_seed)
    arguments = {"dataset": name_or_path, "data_dir": data_dir, "subset": subset}
    arguments |= {"split_seed": subset_seed, "image_size": image_size, "metadata": metadata}
    arguments |= {"cache_dir": cache_dir}
    return replace(data, source={k: v for k, v in arguments.items() if v is not None})


def find_source(name: str, data_dir: Path | None) -> tuple[str, Path | None]:
    """The name of the source, and the path of its data."""
    if name in sources:
        return name, data_dir
    path = Path(name)
    if data_dir is not None and (path.suffix.lower() == ".npz" or path.is_dir()):
        raise UserError(f"{name!r} is a path already; leave out --data-dir.")
    if path.suffix.lower() == ".npz":
        return "npz", path
    if path.is_dir():
        return "folder", path
    if len(path.parts) > 1 or name.endswith("/"):
        raise UserError(
            f"There is no data set at {name!r}; give the path of a folder of images or of an .npz "
            f"file, or one of {', '.join(sources)}."
        )
    known = [source for source in sources if source not in ("folder", "npz")]
    raise unknown("data set", name, [*known, "the path of a folder of images", "an .npz file"])
