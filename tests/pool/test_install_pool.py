"""The installer: refuses with a reason, never half done, safe when two run at once."""

from __future__ import annotations

import email.utils
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from condor_advice.lab import install_pool
from condor_advice.lab.install_pool import HTCondor, PoolUnavailable, installed
from condor_advice.lab.pool import Pool

COMMAND = [sys.executable, "-m", "condor_advice.lab.install_pool"]


@pytest.fixture
def path_without_htcondor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with an HTCondor of its own would install nothing."""
    folders = os.environ["PATH"].split(os.pathsep)
    plain = [folder for folder in folders if not Path(folder, "condor_master").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(plain))


@pytest.fixture
def no_htcondor(path_without_htcondor: None, tmp_path: Path) -> Path:
    return tmp_path / "no" / "htcondor" / "here"


def refusal(directory: Path) -> str:
    with pytest.raises(PoolUnavailable) as refused:
        install_pool.install(directory)
    assert installed(directory) is None
    return str(refused.value)


def test_other_machines_are_told_what_to_install(
    no_htcondor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    text = refusal(no_htcondor)
    assert "this is Linux on aarch64" in text
    assert "so that condor_master is on PATH" in text


def test_a_machine_without_apt_is_told_what_to_install(
    no_htcondor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    text = refusal(no_htcondor)
    assert "this machine has no apt-get" in text
    assert "so that condor_master is on PATH" in text


@pytest.fixture
def apt(path_without_htcondor: None) -> None:
    if shutil.which("apt-get") is None or not install_pool.KEYRING.exists():
        pytest.skip("apt-get and Debian's keyring are needed: this is not Debian")


@pytest.mark.usefixtures("apt")
def test_a_mirror_out_of_reach_is_an_error_with_apts_words(
    no_htcondor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Real apt, sent to a proxy where nobody listens.
    config = tmp_path / "apt.conf"
    nowhere = "http://127.0.0.1:9"
    config.write_text(
        f'Acquire::http::Proxy "{nowhere}"; Acquire::https::Proxy "{nowhere}";Acquire::Retries "0";'
    )
    monkeypatch.setenv("APT_CONFIG", str(config))
    text = refusal(no_htcondor)
    assert "127.0.0.1" in text
    assert "Check the network, or install HTCondor yourself" in text
    assert os.listdir(no_htcondor) == ["lock"]


@pytest.mark.usefixtures("apt")
def test_a_machine_without_debian_sources_is_told_so(
    no_htcondor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "apt.conf"
    config.write_text('Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "/dev/null";')
    monkeypatch.setenv("APT_CONFIG", str(config))
    assert "has no source for Debian itself" in refusal(no_htcondor)


@pytest.mark.usefixtures("apt")
def test_a_mirror_that_is_not_signed_by_debian_is_refused(
    no_htcondor: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A complete little mirror with its own "condor", on a machine that trusts anybody.
    mirror = tmp_path / "mirror"
    for suite in install_pool.SUITES:
        index = b"Package: condor\nVersion: 99\nArchitecture: amd64\nFilename: c.deb\nSize: 1\n"
        packages = mirror / "dists" / suite / "main" / "binary-amd64" / "Packages"
        packages.parent.mkdir(parents=True)
        packages.write_bytes(index)
        digest = hashlib.sha256(index).hexdigest()
        (mirror / "dists" / suite / "Release").write_text(
            f"Suite: {suite}\nCodename: {suite}\nArchitectures: amd64\nComponents: main\n"
            f"Date: {email.utils.formatdate(usegmt=True)}\n"
            f"SHA256:\n {digest} {len(index)} main/binary-amd64/Packages\n"
        )
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{mirror} stable main\n")
    config = tmp_path / "apt.conf"
    config.write_text(
        f'Dir::Etc::sourcelist "{tmp_path}/sources.list"; Dir::Etc::sourceparts "/dev/null";'
        'Acquire::AllowInsecureRepositories "true";'
    )
    monkeypatch.setenv("APT_CONFIG", str(config))
    assert "is not signed" in refusal(no_htcondor)


def test_a_half_finished_install_does_not_count(no_htcondor: Path) -> None:
    (no_htcondor / "htcondor" / "usr" / "sbin").mkdir(parents=True)
    (no_htcondor / "htcondor" / "usr" / "sbin" / "condor_master").touch()
    assert installed(no_htcondor) is None


def test_a_moved_install_does_not_count(no_htcondor: Path) -> None:
    prefix = no_htcondor / "htcondor"
    prefix.mkdir(parents=True)
    (prefix / "installed.json").write_text(json.dumps({"prefix": str(prefix)}))
    assert installed(no_htcondor) == HTCondor.below(prefix / "usr")
    moved = no_htcondor.with_name("elsewhere")
    no_htcondor.rename(moved)
    assert installed(moved) is None


def test_an_install_that_is_reached_by_a_link_is_used_as_it_is(
    no_htcondor: Path, tmp_path: Path
) -> None:
    prefix = no_htcondor / "htcondor"
    prefix.mkdir(parents=True)
    (prefix / "installed.json").write_text(json.dumps({"prefix": str(prefix)}))
    link = tmp_path / "another_checkout"
    link.symlink_to(no_htcondor)
    assert installed(link) == HTCondor.below(link / "htcondor" / "usr")


def test_condor_master_on_path_is_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("sbin/condor_master", "libexec/condor/curl_plugin", "lib64/condor/x"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "sbin"))
    found = install_pool.install(tmp_path / "unused")
    assert found.sbin == tmp_path / "sbin"
    assert (found.libexec, found.lib) == (tmp_path / "libexec/condor", tmp_path / "lib64/condor")
    assert not (tmp_path / "unused").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("apt", "pool")  # where a pool was had, another can be had
def test_two_installs_at_once_after_one_that_was_killed(
    tmp_path: Path, make_pool: Callable[..., Pool]
) -> None:
    directory = tmp_path / "pool"

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    killed = start()
    assert killed.stderr is not None
    while "unpacking" not in killed.stderr.readline():
        assert killed.poll() is None
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert installed(directory) is None
    [abandoned] = directory.glob("building-*")

    both = [start(), start()]
    answers = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert {answer[0] for answer in answers} == {f"{directory}/htcondor/usr/bin\n"}
    assert sum("unpacking" in answer[1] for answer in answers) == 1
    assert sum("waiting for another install" in answer[1] for answer in answers) == 1
    assert not abandoned.exists()
    assert sorted(os.listdir(directory)) == ["htcondor", "lock"]

    began = time.monotonic()
    htcondor = install_pool.install(directory)
    assert time.monotonic() - began < 0.1
    with make_pool(htcondor=htcondor, execution_points=()) as pool:
        version = pool.run(["condor_version"]).stdout
    assert version.startswith("$CondorVersion: ")
