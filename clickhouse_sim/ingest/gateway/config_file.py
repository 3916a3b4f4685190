"""Gateways from a JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Unpack, cast

from clickhouse_sim.ingest.gateway.errors import DedupeConfigError
from clickhouse_sim.ingest.gateway.gateway import DedupeGateway
from clickhouse_sim.ingest.gateway.options import FileOptions, Options
from clickhouse_sim.ingest.gateway.windows import chosen_windows, is_duration

_WINDOWS = ("sliding_window_seconds", "max_sliding_window_seconds")


def _is_positive_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_FIELDS: Mapping[str, tuple[str, str, Callable[[object], bool]]] = {
    "preset": ("preset", "a string", lambda value: isinstance(value, str)),
    "slidingWindowSeconds": (_WINDOWS[0], "a positive, finite number", is_duration),
    "maxSlidingWindowSeconds": (_WINDOWS[1], "a positive, finite number", is_duration),
    "autoCleanup": ("auto_cleanup", "true or false", lambda value: isinstance(value, bool)),
    "autoCleanupIntervalSeconds": ("auto_cleanup_interval_seconds", "a positive, finite number", is_duration),
    "durableIdentityLedgerPath": (
        "durable_identity_ledger_path",
        "a non-empty string",
        lambda value: isinstance(value, str) and value != "",
    ),
    "maxDurableIdentities": ("max_durable_identities", "a positive integer", _is_positive_integer),
}
"""The fields of a file: the option that each is, and what it must hold."""


def load_dedupe_gateway_config_file(path: str | Path) -> FileOptions:
    """The options that a JSON file chooses, checked; no gateway is made.

    The file has either `preset` or both `slidingWindowSeconds` and `maxSlidingWindowSeconds`. The path of a ledger in
    it is relative to the file's folder. Raises DedupeConfigError for everything else, naming the file and the field.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = json.loads(text, object_pairs_hook=_once)
        options = _options(content)
    except OSError as problem:
        raise DedupeConfigError(f"Cannot read {path}: {problem.strerror}.") from None
    except RecursionError:
        raise DedupeConfigError(f"{path}: nested too deeply.") from None
    except DedupeConfigError as problem:
        raise DedupeConfigError(f"{path}: {problem}") from None
    except ValueError as problem:
        raise DedupeConfigError(f"{path} is no JSON: {problem}.") from None
    if (ledger := options.get("durable_identity_ledger_path")) is not None:
        options["durable_identity_ledger_path"] = Path(path).absolute().parent / ledger
    return options


def create_dedupe_gateway_from_config_file(path: str | Path, **overrides: Unpack[Options]) -> DedupeGateway:
    """A gateway as a file says, except for the overrides.

    An overriding preset takes the place of the file's windows, overriding windows the place of its preset, and a
    ledger of the caller's the place of the file's. Raises as `load_dedupe_gateway_config_file` and `DedupeGateway`.
    """
    options = cast(Options, load_dedupe_gateway_config_file(path))
    if "preset" in overrides:
        for window in _WINDOWS:
            options.pop(window, None)  # type: ignore[misc]
    if any(window in overrides for window in _WINDOWS):
        options.pop("preset", None)
    if "identity_ledger" in overrides:
        options.pop("durable_identity_ledger_path", None)
        options.pop("max_durable_identities", None)
    options.update(overrides)
    return DedupeGateway(**options)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise DedupeConfigError(f'the field "{name}" is there twice.')
    return dict(pairs)


def _options(content: object) -> FileOptions:
    if not isinstance(content, dict):
        raise DedupeConfigError("it must hold one JSON object.")
    options: dict[str, Any] = {}
    for field, value in content.items():
        if field not in _FIELDS:
            raise DedupeConfigError(f'unknown field "{field}"; there are {", ".join(_FIELDS)}.')
        option, kind, fits = _FIELDS[field]
        if not fits(value):
            raise DedupeConfigError(f'the field "{field}" must be {kind}.')
        options[option] = value
    preset, *windows = (options.get(name) for name in ("preset", *_WINDOWS))
    if preset is not None and windows != [None, None]:
        raise DedupeConfigError(
            'choose either "preset", or "slidingWindowSeconds" and "maxSlidingWindowSeconds", but not both.'
        )
    if preset is None and None in windows:
        raise DedupeConfigError('choose "preset", or both "slidingWindowSeconds" and "maxSlidingWindowSeconds".')
    chosen_windows(preset, *windows)
    if ("durable_identity_ledger_path" in options) != ("max_durable_identities" in options):
        raise DedupeConfigError('"durableIdentityLedgerPath" and "maxDurableIdentities" go together: give both.')
    return cast(FileOptions, options)
