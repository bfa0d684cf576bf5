"""Threads: no more than the cores that a container may use."""

import pytest
import torch

from engine.threads import cores_granted, fit_threads


@pytest.fixture
def groups(tmp_path):
    """Lays out control groups -> the arguments of `fit_threads`."""

    def lay_out(own, files):
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            file = tmp_path / "root" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path / "root", tmp_path / "own"

    return lay_out


@pytest.mark.parametrize(
    ("own", "files", "granted"),
    [
        ("0::/", {"cpu.max": "200000 100000\n"}, [2.0]),
        ("0::/", {"cpu.max": "max 100000\n"}, []),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000"}, [0.5]),
        ("0::/not/here", {"cpu.max": "150000 100000"}, [1.5]),
        (
            "3:cpu,cpuacct:/a\n2:memory:/a",
            {
                "cpu/a/cpu.cfs_quota_us": "400000\n",
                "cpu/a/cpu.cfs_period_us": "100000\n",
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
            },
            [4.0],
        ),
        ("0::/", {}, []),
    ],
)
def test_the_cores_that_the_groups_grant(groups, own, files, granted):
    assert cores_granted(*groups(own, files)) == granted


def test_without_groups_nothing_is_limited(tmp_path):
    assert cores_granted(tmp_path, tmp_path / "none") == []


@pytest.mark.parametrize(
    ("quota", "torchs_own", "threads"),
    [("200000", 64, 2), ("150000", 64, 2), ("10000", 64, 1), ("800000", 4, 4), ("max", 64, 64)],
)
def test_threads_are_no_more_than_the_cores_granted(
    groups, monkeypatch, quota, torchs_own, threads
):
    now = [torchs_own]
    monkeypatch.setattr(torch, "get_num_threads", lambda: now[-1])
    monkeypatch.setattr(torch, "set_num_threads", now.append)
    fit_threads(*groups("0::/", {"cpu.max": f"{quota} 100000"}))
    assert now[-1] == threads
