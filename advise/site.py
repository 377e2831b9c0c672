"""A site's policies, from its configuration files: deadlines, caps, codes that are final.

`/etc/condor-advice/site.toml` comes first; `condor-advice/site.toml` in the XDG configuration
directory overrides it. CONDOR_ADVICE_SITE names one file to read instead of both. `show_others`
counts in the first only: users must not unlock what the site hides from them.
docs/facilitator.md has an example with every setting.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from condor_advice.gather.errors import UsageError

SYSTEM_FILE = Path("/etc/condor-advice/site.toml")


@dataclass(frozen=True, slots=True)
class Site:
    """One site's policies; without a file these defaults apply."""

    name: str = ""
    remove_held_after_days: float | None = None  # when the site removes held jobs
    max_holds: int | None = None  # jobs held more often should be removed
    max_request_memory_mb: float | None = None
    max_request_disk_mb: float | None = None
    fatal_codes: tuple[str, ...] = ()  # "34/102" or "34": never released
    staff_codes: tuple[str, ...] = ()  # staff decide about these
    release_above: float | None = None  # instead of the model's own threshold
    retry_minutes: float = 10.0  # per hold, before retrying after a transient cause
    stale_minutes: float = 60.0  # an older store gets a note
    show_others: bool = False  # list other users' jobs from others' stores; SYSTEM_FILE only
    contact: str = ""  # whom to ask
    acting: Mapping[str, Any] = field(default_factory=dict)  # limits on --apply; see apply/plan.py
    sources: tuple[str, ...] = field(default=())  # the files that were read

    def is_fatal(self, code: int | None, subcode: int | None) -> bool:
        """Tell whether a hold code is final here."""
        return _listed(self.fatal_codes, code, subcode)

    def is_staffs(self, code: int | None, subcode: int | None) -> bool:
        """Tell whether staff decide about a hold code here."""
        return _listed(self.staff_codes, code, subcode)


def _listed(codes: tuple[str, ...], code: int | None, subcode: int | None) -> bool:
    return code is not None and (str(code) in codes or f"{code}/{subcode}" in codes)


def site_files() -> list[Path]:
    """Return the files to read if they exist; later ones override earlier ones."""
    if named := os.environ.get("CONDOR_ADVICE_SITE"):
        return [Path(named)]
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [SYSTEM_FILE, Path(base) / "condor-advice" / "site.toml"]


def load_site() -> Site:
    """Read the site's policies; an unknown setting is an error."""
    settings: dict[str, Any] = {}
    sources = []
    for path in site_files():
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            if "CONDOR_ADVICE_SITE" in os.environ:
                raise UsageError(f"{path}: no such file; correct CONDOR_ADVICE_SITE") from None
            continue
        except OSError as error:
            raise UsageError(f"{path}: cannot read the file ({error.strerror})") from None
        read = _parse(path, raw)
        if "acting" in read:
            read["acting"] = settings.get("acting", {}) | read["acting"]
        if path != SYSTEM_FILE:
            read.pop("show_others", None)
        settings |= read
        sources.append(str(path))
    return Site(**settings, sources=tuple(sources))


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int | None": (int,),
    "float": (int, float),
    "float | None": (int, float),
    "tuple[str, ...]": (list,),
    "Mapping[str, Any]": (dict,),
}


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    import tomllib

    try:
        settings = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML ({error}); see docs/facilitator.md") from None
    known = {entry.name: str(entry.type) for entry in fields(Site) if entry.name != "sources"}
    for name, value in settings.items():
        if name not in known:
            raise UsageError(
                f"{path}: unknown setting {name!r}; known are {', '.join(sorted(known))}"
            )
        wanted = _KINDS[known[name]]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise UsageError(
                f"{path}: {name} is {value!r}; it must be of type {wanted[-1].__name__}"
            )
        if isinstance(value, list):
            settings[name] = tuple(str(item) for item in value)
    return settings
