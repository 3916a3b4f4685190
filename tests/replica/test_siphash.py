"""The 128-bit hash: equal to ClickHouse's, equal on both its paths, and compiled wherever it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import siphash24
from hypothesis import given
from hypothesis import strategies as st

from replica.dedup import siphash
from replica.dedup.siphash import SipHash128, siphash128

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", (16826475524770608434, 17803272260936971749)),
        (b"abc", (7812503844370625718, 6026680847827294824)),
        (bytes(range(15)), (17598909747842237408, 2624930047420715139)),
    ],
)
def test_clickhouses_values(data: bytes, expected: tuple[int, int]) -> None:
    assert siphash128(data) == expected


def xor_of_halves(data: bytes) -> int:
    first, second = siphash128(data)
    return first ^ second


@given(st.binary(max_size=600))
def test_the_halves_xor_to_the_64_bit_hash(data: bytes) -> None:
    assert xor_of_halves(data) == int.from_bytes(siphash24.siphash24(data).digest(), "little")


def test_the_halves_of_a_large_buffer_xor_to_the_64_bit_hash() -> None:
    for size in (4095, 4096, 4097, 100_003):
        data = np.random.default_rng(size).bytes(size)
        assert xor_of_halves(data) == int.from_bytes(siphash24.siphash24(data).digest(), "little")


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_cuts_make_no_difference(pieces: list[bytes]) -> None:
    state = SipHash128()
    for piece in pieces:
        state.update(piece)
    assert state.digest() == siphash128(b"".join(pieces))


def test_a_digest_ends_nothing() -> None:
    state = SipHash128()
    state.update(b"ab")
    state.digest()
    state.update(b"c")
    assert state.digest() == siphash128(b"abc")


@given(st.lists(st.integers(0, 2**64 - 1), max_size=30), st.tuples(*[st.integers(0, 2**64 - 1)] * 4))
def test_both_paths_are_the_same_function(words: list[int], state: siphash.State) -> None:
    compiled = siphash._kernel()(*state, np.array(words, "<u8"))
    assert compiled == siphash._compress_in_python(state, words)


@pytest.mark.parametrize("dtype", ["u1", "<u2", "<i8", "<f8"])
def test_any_numpy_buffer_is_hashed_as_its_bytes(dtype: str) -> None:
    values = np.arange(3000).astype(dtype)
    values.flags.writeable = False
    state = SipHash128()
    state.update(b"odd")
    state.update(values)
    assert state.digest() == siphash128(b"odd" + values.tobytes())


@pytest.mark.parametrize("dtype", ["<u1", "<i2", "<u4", "<f8", ">u8"])
@pytest.mark.parametrize("before", range(9))
@pytest.mark.parametrize("count", [0, 1, 7, 10_001])
def test_numbers_with_gaps_other_byte_order_or_a_mask_are_hashed_as_if_gathered(
    dtype: str, before: int, count: int
) -> None:
    chance = np.random.default_rng(before)
    raw = chance.integers(0, 256, 2 * count * np.dtype(dtype).itemsize, np.uint8)
    values = raw.view(dtype)[1::2]
    hidden = np.ma.array(values, mask=chance.random(count) < 0.5, fill_value=0)
    for data in (values, hidden):
        state = SipHash128()
        state.update(bytes(before))
        state.update(data)
        state.update(b"after")
        shown = np.where(np.ma.getmaskarray(data), np.zeros((), dtype), values)
        assert state.digest() == siphash128(
            bytes(before) + shown.astype(dtype.replace(">", "<")).tobytes() + b"after"
        )


def run_python(code: str, folder: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=kept | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LARGE = "from replica.dedup.siphash import siphash128; print(siphash128(bytes(100_000)))"


def test_small_hashes_and_imports_do_not_load_numba() -> None:
    code = """
import sys, replica, replica.dedup.block_id, replica.dedup.siphash as s
s.siphash128(b"x" * 80)
print("numba" in sys.modules)
"""
    assert run_python(code, ROOT) == "False\n"


@pytest.fixture
def sealed_package(tmp_path: Path) -> Path:
    """A copy of the package where no machine code can be kept beside the source, not even by root."""
    shutil.copytree(ROOT / "replica", tmp_path / "replica", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "coordinator", tmp_path / "coordinator", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "replica" / "dedup" / "__pycache__").write_text("in the way")
    return tmp_path


def test_a_read_only_package_keeps_its_machine_code_in_the_users_cache(sealed_package: Path) -> None:
    home = sealed_package / "home"
    home.mkdir()
    assert run_python(LARGE, sealed_package, HOME=str(home)) == f"{siphash128(bytes(100_000))}\n"
    assert list(home.rglob("siphash_kernel*.nbi"))


@pytest.mark.parametrize(
    "environment", [{"HOME": "/dev/null/nowhere", "XDG_CACHE_HOME": "/dev/null/x"}, {"HOME": ""}]
)
def test_with_no_place_to_write_it_is_compiled_all_the_same(
    sealed_package: Path, environment: dict[str, str]
) -> None:
    assert run_python(LARGE, sealed_package, **environment) == f"{siphash128(bytes(100_000))}\n"
