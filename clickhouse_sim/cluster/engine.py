"""The container engine, through the docker SDK: the one place that knows what the SDK raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import docker
import requests

from clickhouse_sim.cluster.container_plan import Image
from clickhouse_sim.cluster.errors import ClusterError, ClusterUnreachable

_ANSWER_SECONDS = 60


def connect() -> Any:
    """A client of the engine that DOCKER_HOST names, else of this machine's. Raises ClusterUnreachable."""
    try:
        client = docker.from_env(timeout=_ANSWER_SECONDS)
        client.ping()
    except (docker.errors.DockerException, requests.RequestException) as problem:
        raise ClusterUnreachable(
            f"no Docker engine answers ({_in_short(problem)}): start one, or name it with DOCKER_HOST; without one,"
            " chsim up runs processes"
        ) from None
    return client


def require_image(client: Any, image: Image) -> None:
    """Raises ClusterUnreachable when the engine does not have it; it is never pulled unasked."""
    try:
        client.images.get(image.name)
    except docker.errors.ImageNotFound:
        raise ClusterUnreachable(
            f"the Docker engine has no image {image.name}, so nothing was started: get it with"
            f" {image.how_to_get.format(image.name)}, or name another in {image.variable}"
        ) from None


@contextmanager
def told_as_cluster_errors() -> Iterator[None]:
    """Raises ClusterError for what the engine refuses, ClusterUnreachable when it no longer answers."""
    try:
        yield
    except docker.errors.APIError as problem:
        raise ClusterError(f"the Docker engine refuses: {problem.explanation or problem}") from None
    except docker.errors.DockerException as problem:
        raise ClusterError(f"the Docker engine: {_in_short(problem)}") from None
    except requests.RequestException as problem:
        raise ClusterUnreachable(f"the Docker engine does not answer any more ({_in_short(problem)})") from None


def _in_short(problem: Exception) -> str:
    """The SDK wraps errors in errors; the innermost says it."""
    text = str(problem)
    for reason in ("No such file or directory", "Connection refused", "Permission denied"):
        if reason in text:
            return reason
    return text
