"""The benches' own ground: equal rows for everybody, figures as rows, processes that are gone afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import clickhouse_server, zookeeper
from benchmarks.__main__ import main
from benchmarks.blocks import Block
from benchmarks.clickhouse_pair import ClickHousePair
from benchmarks.pairs import Pairs
from benchmarks.processes import NotInstalled, NotMeasured, Process, free_ports
from benchmarks.report import Row, compared, in_turns
from benchmarks.zookeeper import ZooKeeper


def test_both_forms_of_a_block_hold_the_same_rows() -> None:
    block = Block(254, 3)
    days, keys, texts = (column.to_pylist() for column in block.arrow.columns)
    expected = b""
    for day, key, text in zip(days, keys, texts, strict=True):
        days_since_1970 = day.toordinal() - 719_163
        expected += days_since_1970.to_bytes(2, "little") + key.to_bytes(8, "little") + bytes([len(text)]) + text
    assert keys == [254, 255, 256]
    assert block.row_binary == expected


def test_a_row_has_a_ratio_only_beside_something() -> None:
    assert compared("a", 3.0, "b", 2.0, "{:.0f} s", False) == Row("a", "3 s", "b", "2 s", 1.5, False)
    assert compared("a", 3.0, "", None, "{:.0f} s") == Row("a", "3 s")


def test_works_take_turns_after_a_warm_up() -> None:
    order: list[str] = []
    in_turns((lambda: order.append("a"), lambda: order.append("b")), rounds=2)
    assert order == ["a", "b"] * 3


def test_a_process_that_ends_too_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", "print('no such key'); raise SystemExit(1)"], tmp_path / "log")
    with pytest.raises(NotMeasured, match=r"(?s)it serves: not so at its end.*no such key"):
        process.wait_until(lambda: False, "it serves")


def test_a_stopped_process_is_gone(tmp_path: Path) -> None:
    process = Process([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log")
    process.stop()
    assert not Path(f"/proc/{process.pid}").exists()
    process.stop()


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


def test_what_is_not_installed_is_said_with_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper.shutil, "which", lambda *_, **__: None)
    with pytest.raises(NotInstalled, match="apt-get install -y zookeeper"):
        ZooKeeper(tmp_path / "zookeeper")
    somewhere = object.__new__(ZooKeeper)
    somewhere.address = "127.0.0.1:2181"
    monkeypatch.setattr(clickhouse_server.shutil, "which", lambda *_, **__: None)
    with pytest.raises(NotInstalled, match="apt-get install -y clickhouse-server"):
        ClickHousePair(tmp_path / "clickhouse", somewhere)
    assert [row.beside for row in Pairs((), None, "install it").missing()] == ["install it"]


def test_an_unknown_bench_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["speed"])
    assert result.exit_code == 2
    assert "catch-up" in result.output
