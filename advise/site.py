"""What a site decides: removal deadlines, caps, codes that are final. A file, never constants.

`/etc/condor-advice/site.toml`, then `condor-advice/site.toml` in the XDG configuration
directory, the later one counting more; CONDOR_ADVICE_SITE names one file instead of both.
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
    """One site's policies; without a file nothing is assumed but the defaults here."""

    name: str = ""
    remove_held_after_days: float | None = None  # held jobs are removed then
    max_holds: int | None = None  # a job held more often is to be removed
    max_request_memory_mb: float | None = None
    max_request_disk_mb: float | None = None
    fatal_codes: tuple[str, ...] = ()  # "34/102" or "34": never to be released
    staff_codes: tuple[str, ...] = ()  # the staff decides
    release_above: float | None = None  # instead of the model's own threshold
    retry_minutes: float = 10.0  # per hold, before what passes by itself is tried again
    stale_minutes: float = 60.0  # a store older than this is said to be
    show_others: bool = False  # other people's ids and reasons, from a store that is not one's own
    contact: str = ""  # whom to ask
    acting: Mapping[str, Any] = field(default_factory=dict)  # limits of --apply: see acting.py
    sources: tuple[str, ...] = field(default=())  # the files read

    def is_fatal(self, code: int | None, subcode: int | None) -> bool:
        """Tell whether a hold code is final here."""
        return _listed(self.fatal_codes, code, subcode)

    def is_staffs(self, code: int | None, subcode: int | None) -> bool:
        """Tell whether the staff decides about a hold code here."""
        return _listed(self.staff_codes, code, subcode)


def _listed(codes: tuple[str, ...], code: int | None, subcode: int | None) -> bool:
    return code is not None and (str(code) in codes or f"{code}/{subcode}" in codes)


def site_files() -> list[Path]:
    """Return the files that may exist, in the order in which they count."""
    if named := os.environ.get("CONDOR_ADVICE_SITE"):
        return [Path(named)]
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return [SYSTEM_FILE, Path(base) / "condor-advice" / "site.toml"]


def load_site() -> Site:
    """Read the site's policies; a setting that is not known is an error, not a wish."""
    settings: dict[str, Any] = {}
    sources = []
    for path in site_files():
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            if "CONDOR_ADVICE_SITE" in os.environ:
                raise UsageError(
                    f"{path}: CONDOR_ADVICE_SITE names it, and there is no such file"
                ) from None
            continue
        except OSError as error:
            raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
        read = _parse(path, raw)
        if "acting" in read:
            read["acting"] = settings.get("acting", {}) | read["acting"]
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
        found = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML ({error}); see docs/facilitator.md") from None
    known = {one.name: str(one.type) for one in fields(Site) if one.name != "sources"}
    for name, value in found.items():
        if name not in known:
            raise UsageError(
                f"{path}: there is no setting {name!r}; there are {', '.join(sorted(known))}"
            )
        wanted = _KINDS[known[name]]
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            raise UsageError(f"{path}: {name} is {value!r}, which is no {wanted[-1].__name__}")
        if isinstance(value, list):
            found[name] = tuple(str(one) for one in value)
    return found
