"""HTCondor itself gathers and retrains on a schedule."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from condor_advice.dag.cron import plan_cron
from condor_advice.gather.errors import UsageError


def test_the_jobs_are_submitted_once_and_wait_for_their_time(pool, tmp_path, monkeypatch):
    monkeypatch.setenv("CONDOR_ADVICE_MODELS", str(tmp_path / "models"))
    command = [
        *(sys.executable, "-m", "condor_advice", "sweep", "cron", "--out", str(tmp_path / "cron")),
        *("--store", str(tmp_path / "store.sqlite"), "--gather", str(pool.event_log)),
        *("--gather-every", "10", "--retrain-at", "3:30", "--json"),
    ]
    clusters = json.loads(pool.run(command).stdout)["clusters"]
    try:
        ads = {ad["CondorAdviceCron"]: ad for ad in pool.jobs("CondorAdviceCron isnt undefined")}
        assert {name: ad["ClusterId"] for name, ad in ads.items()} == clusters
        assert (ads["gather"]["CronMinute"], ads["gather"]["CronHour"]) == ("*/10", "*")
        assert (ads["retrain"]["CronMinute"], ads["retrain"]["CronHour"]) == ("30", "3")
        assert ads["retrain"]["OnExitRemove"] is False
        assert "train" in ads["retrain"]["Args" if "Args" in ads["retrain"] else "Arguments"]
        again = pool.run(command, check=False)
        assert again.returncode == 2
        assert "gather is already in the queue as job" in again.stderr
    finally:
        pool.run(["condor_rm", *map(str, clusters.values())])


@pytest.mark.parametrize("at", ["24:00", "3", "3:60", "noon"])
def test_a_wrong_time_is_refused(at):
    with pytest.raises(UsageError, match="give a time such as 3:30"):
        plan_cron(Path("store"), [], 5, at, "90d")


def test_without_logs_only_the_retraining_is_planned(tmp_path):
    [job] = plan_cron(tmp_path / "my store", [], 5, "23:05", "30d")
    assert (job.name, job.hour, job.minute) == ("retrain", "23", "5")
    assert "--since" in job.command
