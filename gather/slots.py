"""Which slots of the pool could run a job, and which of its requirements leaves none.

The collector is asked once, with a projection, and only where an answer needs it. Slots that do not
differ in what the jobs ask about are looked at once. A partitionable slot counts as large as it is
when nothing runs on it: the question is whether a job could ever run, not when.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from condor_advice.gather.errors import Unreachable
from condor_advice.gather.live import HOLD_ATTRIBUTES, htcondor2_module

QUERY_SECONDS = "5"  # a collector that takes longer does not answer
LONGEST_REQUIREMENTS = 20_000  # characters
MOST_ATTRIBUTES = 300  # in the projection
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_KNOWN_TO_JOBS = frozenset(name.lower() for name in HOLD_ATTRIBUTES)


class Resource(Enum):
    """What a job requests an amount of; the value is the slot's attribute."""

    MEMORY = "Memory"
    DISK = "Disk"
    CPUS = "Cpus"
    GPUS = "GPUs"

    @property
    def request(self) -> str:
        """The job's attribute."""
        return f"Request{self.value}"

    @property
    def total(self) -> str:
        """The attribute of a partitionable slot on which nothing runs."""
        return f"TotalSlot{self.value}"

    def words(self, amount: float) -> str:
        """Return an amount with its unit, as `2,048 MB of disk`."""
        if self is Resource.MEMORY:
            return f"{amount:,.0f} MB of memory"
        if self is Resource.DISK:
            return f"{amount / 1024:,.0f} MB of disk"
        name = {Resource.CPUS: "core", Resource.GPUS: "GPU"}[self]
        return f"{amount:,.0f} {name}{'' if amount == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Condition:
    """One of a job's requirements, and how many slots meet it, whatever the others say."""

    expression: str
    slots: int
    resource: Resource | None = None  # None: a term of Requirements
    asked: float = 0.0
    largest: float = 0.0  # of all slots


@dataclass(frozen=True, slots=True)
class SlotMatch:
    """How many slots could run a job."""

    slots: int  # in the pool
    matching: int
    conditions: tuple[Condition, ...]
    # The largest amount on a slot that meets everything but the request for that resource.
    most: Mapping[Resource, float]
    refusing: int = 0  # slots that meet the requirements, but whose START refuses the job now


@dataclass(frozen=True, slots=True)
class _Kind:
    """Slots that are alike in all that the jobs ask about."""

    ad: Any
    count: int


class PoolSlots:
    """The slots of the pool, asked for once, when the first job needs them."""

    def __init__(self, requirements: Iterable[object] = ()) -> None:
        """Take the Requirements of all jobs that may be asked about, for the projection."""
        names: dict[str, None] = {}
        for text in dict.fromkeys(str(one) for one in requirements if one is not None):
            for name in _identifiers(text):
                names[name] = None
        self._names = [*names][:MOST_ATTRIBUTES]
        self._kinds: list[_Kind] | None = None
        self._asked = False
        self._matches: dict[tuple[object, ...], SlotMatch | None] = {}

    def match(
        self, ad: Mapping[str, Any], edits: Mapping[str, str] | None = None, *, whole: bool = False
    ) -> SlotMatch | None:
        """Judge a job as it would be with the edits; None if the collector does not answer.

        `whole` tells that `ad` has all attributes of the job. Otherwise a term of Requirements
        that names an attribute which is known to neither side counts as met.
        """
        wanted = {**ad, **(edits or {})}
        requirements = str(wanted.get("Requirements", "true"))
        if len(requirements) > LONGEST_REQUIREMENTS:
            return None
        requirements = {"True": "true", "False": "false"}.get(requirements, requirements)
        names = _identifiers(requirements)
        amounts = {resource: _amount(wanted.get(resource.request)) for resource in Resource}
        lowered = {name.lower(): value for name, value in wanted.items()}
        named = tuple((name, str(lowered.get(name.lower()))) for name in names)
        key = (requirements, tuple(amounts.items()), named, whole)
        if key not in self._matches:
            kinds = self._query()
            self._matches[key] = (
                None if kinds is None else _match(kinds, wanted, requirements, amounts, whole)
            )
        return self._matches[key]

    def _query(self) -> list[_Kind] | None:
        if not self._asked:
            self._asked = True
            self._kinds = _ask_collector(self._names)
        return self._kinds


def _ask_collector(names: Sequence[str]) -> list[_Kind] | None:
    sizes = [name for resource in Resource for name in (resource.value, resource.total)]
    projection = [*dict.fromkeys([*sizes, "PartitionableSlot", "Start", *names])]
    try:
        htcondor2 = htcondor2_module()
        htcondor2.param["QUERY_TIMEOUT"] = QUERY_SECONDS
        ads = htcondor2.Collector().query(
            htcondor2.AdType.Startd, "DynamicSlot =!= true", projection
        )
    except (Unreachable, RuntimeError, OSError, ValueError):
        return None
    except htcondor2.HTCondorException:
        return None
    kinds: dict[str, _Kind] = {}
    for ad in ads:
        if ad.get("PartitionableSlot") is True:
            for resource in Resource:
                if _amount(ad.get(resource.total)) is not None:
                    ad[resource.value] = ad[resource.total]
        text = str(ad)
        kinds[text] = _Kind(ad, kinds[text].count + 1 if text in kinds else 1)
    return list(kinds.values())


def _match(
    kinds: Sequence[_Kind],
    job: Mapping[str, Any],
    requirements: str,
    amounts: Mapping[Resource, float | None],
    whole: bool,
) -> SlotMatch | None:
    import classad2

    ad = classad2.ClassAd()
    for name, value in job.items():
        if isinstance(value, bool | int | float | str) and name != "Requirements":
            ad[name] = value
    for resource, amount in amounts.items():
        if amount is not None:
            ad[resource.request] = amount
    try:
        terms = [term for term in conjuncts(str(classad2.ExprTree(requirements)))
                 if not _REQUESTED.fullmatch(term)]  # fmt: skip
        trees = [classad2.ExprTree(term) for term in terms]
    except (classad2.ClassAdException, ValueError, RuntimeError):
        return None
    asked = {resource: amount for resource, amount in amounts.items() if amount}
    known = {name.lower() for kind in kinds for name in kind.ad} | {name.lower() for name in job}
    unknown = [
        not whole and any(
            name.lower() not in known and name.lower() not in _KNOWN_TO_JOBS
            for name in _identifiers(term) if name.lower() not in _WORDS
        )
        for term in terms
    ]  # fmt: skip
    met = [0] * len(terms)
    enough = dict.fromkeys(asked, 0)
    largest = dict.fromkeys(asked, 0.0)
    most: dict[Resource, float] = {}
    matching = refusing = 0
    for kind in kinds:
        fits = {resource: (_amount(kind.ad.get(resource.value)) or 0.0) for resource in asked}
        holds = [
            doubt or _is_true(tree, ad, kind.ad) for tree, doubt in zip(trees, unknown, strict=True)
        ]
        for place, is_met in enumerate(holds):
            met[place] += kind.count * is_met
        large = {resource: size >= asked[resource] for resource, size in fits.items()}
        for resource, size in fits.items():
            enough[resource] += kind.count * large[resource]
            largest[resource] = max(largest[resource], size)
            others = all(is_large for other, is_large in large.items() if other is not resource)
            if others and all(holds):
                most[resource] = max(most.get(resource, 0.0), size)
        if all(holds) and all(large.values()):
            if _refuses(kind.ad, ad):
                refusing += kind.count
            else:
                matching += kind.count
    conditions = [
        Condition(f"{resource.request} = {amount:g}", enough[resource], resource, amount,
                  largest[resource])
        for resource, amount in asked.items()
    ]  # fmt: skip
    conditions += [Condition(term, count) for term, count in zip(terms, met, strict=True)]
    total = sum(kind.count for kind in kinds)
    return SlotMatch(total, matching, tuple(conditions), most, refusing)


def _is_true(tree: Any, ad: Any, slot: Any) -> bool:
    try:
        value = tree.eval(ad, slot)
    except Exception:  # a term that cannot be evaluated matches no slot in HTCondor, either
        return False
    return value is True or (type(value) in (int, float) and value != 0)


def _refuses(slot: Any, ad: Any) -> bool:
    """Tell whether a slot's START refuses the job; what it names may not have been asked for."""
    start = slot.lookup("Start") if "Start" in slot else True
    if isinstance(start, bool):
        return not start
    try:
        return start.eval(slot, ad) is False
    except Exception:
        return False


_REQUESTED = re.compile(
    r"\(*(?:TARGET\.)?(Memory|Disk|Cpus|GPUs) >= (?:MY\.)?Request\1\)*", re.IGNORECASE
)
_WORDS = frozenset({"my", "target", "true", "false", "undefined", "error", "is", "isnt"})


def conjuncts(expression: str) -> list[str]:
    """Split an expression, as HTCondor prints it, where `&&` joins its outermost terms."""
    text = expression.strip()
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1].strip()
    pieces: list[str] = []
    depth = begin = at = 0
    while at < len(text):
        if text[at] == '"':
            at = _string_end(text, at)
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0 and text[at : at + 2] == "&&":
            pieces.append(text[begin:at])
            begin = at = at + 2
            continue
        if depth == 0 and (text[at : at + 2] == "||" or text[at] == "?"):
            return [text]  # these bind less than `&&`
        at += 1
    if not pieces:
        return [text]
    return [term for piece in (*pieces, text[begin:]) for term in conjuncts(piece)]


def _closing(text: str) -> int:
    """Return where the bracket is closed that a text begins with."""
    depth = at = 0
    while at < len(text):
        if text[at] == '"':
            at = _string_end(text, at)
            continue
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0:
            return at
        at += 1
    return -1


def _string_end(text: str, at: int) -> int:
    literal = _STRING.match(text, at)
    return literal.end() if literal else len(text)


def _identifiers(text: str) -> list[str]:
    if len(text) > LONGEST_REQUIREMENTS:
        return []
    return [*dict.fromkeys(_IDENTIFIER.findall(_STRING.sub(" ", text)))]


def _amount(value: object) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if usable else None  # type: ignore[arg-type]
