"""What is sent to an execution point: our package, and on request a whole Python.

The package is a small zip of our own modules. The bundle is an archive of this interpreter, its
standard library and the distributions that nodes import. With it an execution point needs only
a C library no older than this machine's.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path

import condor_advice
from condor_advice.gather.errors import AdviceError

# Folders of the package that nodes import from.
_FOLDERS = ("gather", "preprocess", "model", "dag")
_DATE = (2020, 1, 1, 0, 0, 0)  # a fixed date, so that equal files give equal archives
_KEPT = (".py", ".json", ".npz", ".toml", ".typed")
# Left out of the standard library and of packages: tests, headers and build tools.
_LEFT_OUT = re.compile(
    r"(^|/)(__pycache__|tests?|idlelib|turtledemo|ensurepip|lib2to3|tkinter|site-packages"
    r"|config-[^/]*|include|share|testing/_data)(/|$)|\.(a|pyc|pyi|h|hpp|cuh|cmake)$"
)
# The C library, which must be that of the machine where the bundle runs.
_C_LIBRARY = re.compile(
    r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|nsl|crypt)\.so.*)"
)
# Parts of a package that look like tests but are imported.
_NEEDED = re.compile(r"(^|/)(torch/(testing|utils|_inductor)|numpy/testing)(/|$)")


def write_package(path: Path) -> None:
    """Write our own modules as a zip; the same modules give the same bytes."""
    root = Path(condor_advice.__file__).parent
    files = [root / "__init__.py"]
    for folder in _FOLDERS:
        files += sorted(
            file
            for file in (root / folder).rglob("*")
            if file.suffix in _KEPT and "starter" not in file.parts
        )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            entry = zipfile.ZipInfo(f"condor_advice/{file.relative_to(root)}", _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())


def closure(names: Iterable[str]) -> list[metadata.Distribution]:
    """Return the distributions of these names and all that they require here, each once."""
    distributions: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = _normal(waiting.pop())
        if name in distributions:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise AdviceError(
                f"the bundle needs {name}, which is not installed here; "
                "pip install 'condor-advice[train]', or use environment: {python: PATH}"
            ) from None
        distributions[name] = distribution
        for requirement in distribution.requires or ():
            required = _required(requirement)
            if required is not None:
                waiting.append(required)
    return [distributions[name] for name in sorted(distributions)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(requirement: str) -> str | None:
    """Return the name in a requirement, or None if it does not apply here or is optional."""
    text, _, marker = requirement.partition(";")
    match = re.match(r"[A-Za-z0-9._-]+", text)
    assert match is not None, requirement
    if not marker.strip():
        return match[0]
    if "extra" in marker:
        return None
    # Do not evaluate the marker: what it excludes is not installed, and what is does no harm.
    try:
        metadata.distribution(match[0])
    except metadata.PackageNotFoundError:
        return None
    return match[0]


def _entries(names: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield each file's path in the bundle and its path here."""
    library = Path(sysconfig.get_path("stdlib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    yield "bin/python3", Path(os.path.realpath(sys.executable))
    for file in sorted(library.rglob("*")):
        name = file.relative_to(library).as_posix()
        if file.is_file() and not _LEFT_OUT.search(name):
            yield f"lib/{version}/{name}", file
    for path in _shared_libraries(library / "lib-dynload"):
        yield f"lib/{path.name}", path
    for distribution in closure(names):
        if _normal(distribution.metadata["Name"]) == "condor-advice":
            continue
        for listed in distribution.files or ():
            name = listed.as_posix()
            if name.startswith("..") or (_LEFT_OUT.search(name) and not _NEEDED.search(name)):
                continue
            path = Path(str(distribution.locate_file(listed)))
            if path.is_file() and path.suffix != ".pyc":
                yield f"lib/{version}/site-packages/{name}", path


def _shared_libraries(modules: Path) -> list[Path]:
    """Return the libraries that the interpreter and its modules need, except the C library.

    Wheels bring their own libraries. The standard library's modules (zlib, ctypes, ssl) use the
    system's, which another system may lack.
    """
    ldd = shutil.which("ldd")
    if ldd is None:
        return []
    files = [
        os.path.realpath(sys.executable),
        *(str(path) for path in sorted(modules.glob("*.so")) if "tkinter" not in path.name),
    ]
    shown = subprocess.run([ldd, *files], capture_output=True, text=True, check=False).stdout
    libraries = {}
    for name, where in re.findall(r"^\s+(\S+) => (/\S+)", shown, re.MULTILINE):
        if not _C_LIBRARY.match(name):
            libraries[name] = Path(where)
    # Each under the name by which it is loaded, which may be a symbolic link.
    return [libraries[name] for name in sorted(libraries)]


def bundle_bytes(names: Iterable[str]) -> int:
    """Return the size of the bundle's files before compression."""
    return sum(path.stat().st_size for _, path in _entries(names))


def write_bundle(
    path: Path, names: Iterable[str], say: Callable[[str], None] = lambda _text: None
) -> None:
    """Write the bundle, reusing one that was built before from the same packages."""
    names = sorted(names)
    cached = _cache() / f"bundle-{_digest(names)}.tar.gz"
    if not cached.exists():
        say("building the bundle for execution points; this takes a minute, once")
        cached.parent.mkdir(parents=True, exist_ok=True)
        part = cached.with_name(f".{cached.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file, gzip.GzipFile("", "wb", 1, file, 0) as packed:
                _write_tar(packed, names)
            part.replace(cached)
        finally:
            part.unlink(missing_ok=True)
    try:
        os.link(cached, path)
    except OSError:
        shutil.copyfile(cached, path)


def _write_tar(file: gzip.GzipFile, names: Iterable[str]) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, path in _entries(names):
            info = tarfile.TarInfo(name)
            info.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            data = path.read_bytes()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "condor-advice"


def _digest(names: Iterable[str]) -> str:
    import hashlib

    versions = [f"{d.metadata['Name']} {d.version}" for d in closure(names)]
    text = "\n".join([sys.version, os.path.realpath(sys.executable), *versions, _LEFT_OUT.pattern])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
