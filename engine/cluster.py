"""Ray, as it is used here: a cluster on this machine alone, or one that is there already, and what
of it each replica gets.

Ray is imported where it is first needed, since that takes half a second and reads the environment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import LostError, ModelError, first_line
from engine.live import ON_ZERO_GPU

STORE_BYTES = 128 * 2**20
"""Of memory that processes share; what is told of a step has some hundred bytes."""


class Share(NamedTuple):
    """What each replica has: cores, of which a fraction is one core that several use, or a GPU."""

    cpus: float
    gpus: int

    @property
    def threads(self) -> int | None:
        """For products on the CPU; None where another device makes them."""
        return None if self.gpus else max(1, int(self.cpus))


def reason_against(replicas: int | None, address: str | None, device: str) -> str | None:
    """Why there can be no replicas here, if so, in a sentence for the command line."""
    if replicas is None:
        return "--ray is where replicas run: say how many with --replicas N."
    if ON_ZERO_GPU:
        return "--replicas need devices that stay: ZeroGPU lends one to each run."
    if find_spec("ray") is None:
        return "--replicas need Ray, which is not installed: pip install ray"
    if address is not None and "://" in address:
        return f"--ray takes host:port, on a machine of the cluster, not {address!r:.60}."
    if ":" in device:
        return f"Ray gives each replica a GPU of its own: use --device cuda, not {device!r:.20}."
    return None


def connect(address: str | None) -> None:
    """To the cluster at this address, or to one of its own on this machine, which listens on
    loopback alone. Raises ModelError.

    Ray's processes end with the *thread* that started them (Linux sends their signal then): call
    this from one that stays.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if address is None:
        # Ray's own way to say that nothing outside this machine takes part; read by its import.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    elif has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` does it
    import ray

    logging.getLogger("ray").setLevel(logging.ERROR)
    quiet = {"log_to_driver": False, "configure_logging": False}
    try:
        if address is None:
            ray.init("local", include_dashboard=False, object_store_memory=STORE_BYTES, **quiet)
        else:
            code = {"py_modules": [str(Path(__file__).parent)]}
            ray.init(address, runtime_env=code, **quiet)
    except Exception as error:  # of many kinds, from a wrong address to a wrong version of Python
        where = "be started" if address is None else f"be reached at {address}"
        raise ModelError(f"Ray can't {where}: {first_line(error)}.") from error


def has_token() -> bool:
    """Whether there is a token for clusters that ask for one, in the places where Ray looks."""
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(named) or (Path.home() / ".ray" / "auth_token").exists()


def disconnect() -> None:
    """From the cluster; one of its own ends."""
    import ray

    ray.shutdown()


def share_of(replicas: int, device: str) -> Share:
    """What each of so many replicas gets of the cluster: a GPU, where there are any and the device
    is not another one. Raises ModelError if these are not enough."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = int(sum(node.get("GPU", 0) for node in nodes))
    if gpus and device in ("auto", "cuda"):
        if gpus < replicas:
            raise ModelError(
                f"Each replica has a GPU of its own, and there are {gpus} for {replicas}: "
                f"use --replicas {gpus}, or --device cpu."
            )
        return Share(cpus=1, gpus=1)
    return Share(cpus=fair_cpus([node.get("CPU", 0) for node in nodes], replicas), gpus=0)


def fair_cpus(nodes: Sequence[float], replicas: int) -> float:
    """The most cores that each of so many replicas can have on machines with so many; where there
    are fewer cores than replicas, a core is shared by as few as can be. Raises ModelError if there
    are none."""
    total = sum(nodes)
    if not total:
        raise ModelError("Ray has no cores here for replicas.")
    for cpus in range(int(total) // replicas, 0, -1):
        if sum(int(node) // cpus for node in nodes) >= replicas:
            return cpus
    sharing = (k for k in count(1) if sum(int(node * k) for node in nodes) >= replicas)
    return 1 / next(sharing)


def kill(actor: Any) -> None:
    """End its process; harmless after its end."""
    import ray

    ray.kill(actor)


def drawn(items: Any) -> Iterator[Any]:
    """What comes out of an actor's generator. Raises what it raises there, LostError if the actor
    has died."""
    import ray

    try:
        for item in items:
            yield ray.get(item)
    except ray.exceptions.RayError as error:
        raise raised_there(error) from None


def raised_there(error: Exception) -> Exception:
    """What an error of Ray's tells of: that of the function which an actor ran, or its death."""
    import ray

    if isinstance(error, ray.exceptions.RayTaskError):
        return error.cause
    deaths = (
        ray.exceptions.RayActorError,
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.NodeDiedError,
        ray.exceptions.OutOfMemoryError,
        ray.exceptions.ObjectLostError,
    )
    if not isinstance(error, deaths):
        return error
    lines = str(error).splitlines()
    told = next((line for line in lines if line.startswith("The actor is dead")), None)
    return LostError((told or first_line(error)).split(" Some common causes")[0])


def actors(kind: type, groups: dict[str, int], share: Share) -> Any:
    """The class, each of whose instances is in a process of its own, with so many threads for each
    group of its methods."""
    import ray

    resources = {"num_cpus": share.cpus, "num_gpus": share.gpus}
    return ray.remote(**resources, concurrency_groups=groups)(kind)
