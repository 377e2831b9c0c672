"""The lab's job owners, and what they do about a held job.

An owner acts by habit and by what they can see: the hold reason, how often the job was held
before, and what came of earlier releases with that hold code. They never act on the cause,
which they cannot see. So the recorded releases are a biased sample, as on any real access
point; `RandomisedOwner` gives an unbiased one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from condor_advice.lab import names

if TYPE_CHECKING:
    from condor_advice.lab.kinds import PoolKind

# The share of each behaviour over all owners; a setting of the run.
BEHAVIOURS: Mapping[str, float] = {
    "release_now": 0.25,
    "release_later": 0.30,
    "fix": 0.20,
    "remove": 0.12,
    "ignore": 0.13,
}


@dataclass(frozen=True, slots=True)
class Sight:
    """What an owner can see of a held job."""

    code: int
    subcode: int
    reason: str
    holds: int  # of this job so far, this one included


@dataclass(frozen=True, slots=True)
class OwnerDecision:
    """What to do, and after how many seconds."""

    action: str  # "release", "fix", "remove" or "ignore"
    delay: float
    whole_cluster: bool = False  # act on all held jobs of the cluster


@dataclass(slots=True)
class Owner:
    """An owner with habits of their own."""

    name: str
    rng: Random
    habit: dict[str, float]
    skill: float  # how often a fix is the right one
    haste: float  # multiplies every delay
    patience: int  # holds of one job after which they usually give up
    sweeping: float  # how often they act on the whole cluster
    _seen: dict[int, float] = field(default_factory=dict)  # hold code -> recent share of successes

    @classmethod
    def draw(
        cls,
        name: str,
        seed: str,
        behaviours: Mapping[str, float],
        haste: float = 1.0,
        sweeping: tuple[float, float] = (0.0, 0.6),
    ) -> Owner:
        """Draw an owner; over many owners the mean habit is `behaviours`."""
        rng = Random(f"{seed}/owner/{name}")
        habit = {what: share * rng.gammavariate(1.5, 1 / 1.5) for what, share in behaviours.items()}
        return cls(
            name,
            rng,
            habit,
            skill=rng.uniform(0.4, 0.95),
            haste=haste * rng.lognormvariate(0, 0.4),
            patience=rng.choice((2, 3, 4, 6, 9)),
            sweeping=rng.uniform(*sweeping),
        )

    def decide(self, sight: Sight) -> OwnerDecision:
        """Weight the habit by what the hold looks like, then draw."""
        weights = dict(self.habit)
        for what, factor in _impression(sight, self.name).items():
            weights[what] *= factor
        hope = self._seen.get(sight.code, 0.5)
        weights["release_now"] *= 0.5 + hope
        weights["release_later"] *= 0.6 + 0.8 * hope
        weights["remove"] *= 1.5 - hope
        if sight.holds > self.patience:
            weights["release_now"] *= 0.2
            weights["release_later"] *= 0.3
            weights["remove"] *= 4
        elif sight.holds > 1:
            weights["fix"] *= 1.5
        [chosen] = self.rng.choices(list(weights), list(weights.values()))
        low, typical = _DELAYS[chosen]
        delay = (low + self.rng.expovariate(1 / typical)) * self.haste
        action = "release" if chosen.startswith("release") else chosen
        return OwnerDecision(action, delay, whole_cluster=self.rng.random() < self.sweeping)

    def learn(self, sight: Sight, succeeded: bool) -> None:
        """Remember the outcomes of this hold code; recent ones count most."""
        before = self._seen.get(sight.code, 0.5)
        self._seen[sight.code] = 0.5 * before + 0.5 * succeeded

    def gets_it_right(self) -> bool:
        """Draw whether the fix is the right one this time."""
        return self.rng.random() < self.skill


_DELAYS = {  # seconds: minimum, and mean of the exponential part added to it
    "release_now": (1, 4),
    "release_later": (15, 60),
    "fix": (8, 35),
    "remove": (4, 50),
    "ignore": (0, 1),
}


def _impression(sight: Sight, owner: str) -> dict[str, float]:
    """Return factors for the habit, from what the hold reason suggests."""
    text = sight.reason.lower()
    if sight.code == 1:
        mine = f"by user {owner}" in text
        return (
            {"release_later": 4, "fix": 0, "ignore": 0.5}
            if mine
            else {"release_now": 0.4, "release_later": 1.5, "fix": 0, "ignore": 3}
        )
    if "memory" in text or "disk usage" in text or sight.code in (34, 46, 47):
        return {"fix": 3, "release_now": 0.6, "release_later": 0.6}
    if "url" in text or "protocol http" in text or "no space" in text:
        return {"release_later": 2.5, "fix": 0.6, "remove": 0.6}
    if sight.code == 6 or "no such file" in text or "permission" in text:
        return {"fix": 2, "remove": 1.4}
    if sight.code == 26:
        return {"ignore": 2, "remove": 0.6}
    return {"release_now": 1.3}


@dataclass(slots=True)
class RandomisedOwner:
    """Releases every hold after a delay that depends on nothing, for unbiased truth.

    How many times a job is released is drawn before it runs, so the last release says
    nothing about the job either.
    """

    name: str
    rng: Random
    typical_seconds: float = 35.0  # mean of the exponential part of the delay

    def decide(self, sight: Sight) -> OwnerDecision:
        """Always release; only the delay is drawn."""
        return OwnerDecision("release", 1 + self.rng.expovariate(1 / self.typical_seconds))

    def learn(self, sight: Sight, succeeded: bool) -> None:
        """Learn nothing: that would bias the next decision."""

    def gets_it_right(self) -> bool:
        """Return False: a randomised owner fixes nothing."""
        return False


def population(
    count: int, seed: str, behaviours: Mapping[str, float], randomised: bool
) -> dict[str, Owner | RandomisedOwner]:
    """Draw the owners of a run, by name."""
    chosen = _draw_names(count, seed, names.OWNER_NAMES)
    if randomised:
        return {name: RandomisedOwner(name, Random(f"{seed}/owner/{name}")) for name in chosen}
    return {name: Owner.draw(name, seed, behaviours) for name in chosen}


def population_of_kind(
    kind: PoolKind, count: int, seed: str, behaviours: Mapping[str, float], randomised: float
) -> dict[str, Owner | RandomisedOwner]:
    """Draw the owners of a kind of pool; a share of them releases at random moments."""
    chosen = _draw_names(count, seed, kind.owner_names)
    owners: dict[str, Owner | RandomisedOwner] = {}
    for number, name in enumerate(chosen):
        if number < round(randomised * len(chosen)):
            rng = Random(f"{seed}/owner/{name}")
            owners[name] = RandomisedOwner(name, rng, kind.randomised_seconds)
        else:
            owners[name] = Owner.draw(name, seed, behaviours, kind.haste, kind.sweeping)
    return owners


def _draw_names(count: int, seed: str, known: Sequence[str]) -> list[str]:
    return Random(f"{seed}/owners").sample(list(known), k=min(count, len(known)))
