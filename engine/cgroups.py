"""Which control groups this process is in: a container's limits are written there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


class Group(NamedTuple):
    """A folder of limits, and whether it is one of version 2."""

    folder: Path
    unified: bool


def groups_with(controller: str, *, root: Path = ROOT, own: Path = OWN) -> Iterator[Group]:
    """This process's own group and those around it, where the controller may set limits; of
    version 2 and of 1. None where there are no groups."""
    if not own.exists():
        return
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            folder = root
        elif controller in controllers.split(","):
            folder = root / controller
        else:
            continue
        group = folder / path.lstrip("/")
        # In a container, the path may be one of the host's: then its own root is the group.
        for place in [group, *group.parents]:
            if place.is_relative_to(folder):
                yield Group(place, unified=not controllers)
