"""What this service announces under `/keeper`, as ClickHouse Keeper does, so that clients use its extensions.

`/keeper/feature_flags` is a bit string: feature n is byte n // 8, mask 1 << (7 - n % 8). Only what is implemented
is announced; `/keeper/api_version` stays at 0 (plain ZooKeeper), as higher versions promise more.
"""

from __future__ import annotations

FEATURE_FLAGS_PATH = "/keeper/feature_flags"
CHECK_NOT_EXISTS = 2
ANNOUNCED = (CHECK_NOT_EXISTS,)


def feature_flags(features: tuple[int, ...]) -> bytes:
    """The bit string that announces these features."""
    flags = bytearray(max(features, default=0) // 8 + 1)
    for feature in features:
        flags[feature // 8] |= 1 << (7 - feature % 8)
    return bytes(flags)


def announces(flags: bytes, feature: int) -> bool:
    """Whether a bit string announces the feature."""
    return feature // 8 < len(flags) and bool(flags[feature // 8] & (1 << (7 - feature % 8)))


KEEPER_ROOT = "/keeper"
KEEPER_NODES: dict[str, bytes] = {
    KEEPER_ROOT: b"",
    FEATURE_FLAGS_PATH: feature_flags(ANNOUNCED),
    "/keeper/api_version": b"0",
}


def belongs_to_keeper(path: str) -> bool:
    """Whether the path is one of the service's own, which no client may write."""
    return path == KEEPER_ROOT or path.startswith(KEEPER_ROOT + "/")
