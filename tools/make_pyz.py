"""Build condor_checkpoint.pyz: the in-job hook, its command and its model in one file.

    python tools/make_pyz.py [OUT]

On an execution point: `python3 condor_checkpoint.pyz run ...`, or PYTHONPATH=condor_checkpoint.pyz
and `import condor_checkpoint`.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAIN = "from condor_checkpoint.cli import main\n\nmain()\n"
# A fixed date makes two builds of the same files identical.
DATE = (2020, 1, 1, 0, 0, 0)


def build(out: Path) -> None:
    """Write the archive as an executable file."""
    files = sorted(p for p in (ROOT / "checkpoint").iterdir() if p.suffix in (".py", ".json"))
    with out.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                add(archive, f"condor_checkpoint/{path.name}", path.read_bytes())
            add(archive, "__main__.py", MAIN.encode())
    out.chmod(0o755)


def add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add one file, with the same metadata on every machine."""
    entry = zipfile.ZipInfo(name, DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data)


if __name__ == "__main__":
    build(Path(sys.argv[1] if len(sys.argv) > 1 else "condor_checkpoint.pyz"))
