"""The people of the lab: who they are, and what they do about a held job.

What an owner does depends on a habit and on what there is to see: the hold reason, how
often the job was held before, and what came of the last release of such a hold. It never
depends on the cause, which they cannot see. That makes the recorded releases a biased
sample, as on any real access point; `RandomisedOwner` gives the unbiased one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from condor_advice.lab import names

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
    """What to do and after how many seconds; `whole_cluster` acts on all its held jobs."""

    action: str  # a key of BEHAVIOURS, without now and later
    delay: float
    whole_cluster: bool = False


class Actor(Protocol):
    """Somebody who answers a hold."""

    name: str

    def decide(self, sight: Sight) -> OwnerDecision:
        """Choose what to do about one hold."""

    def learn(self, sight: Sight, succeeded: bool) -> None:
        """Take note of what came of a release."""


@dataclass(slots=True)
class Owner:
    """A person with habits of their own."""

    name: str
    rng: Random
    habit: dict[str, float]
    skill: float  # how often a fix is the right one
    haste: float  # multiplies every delay
    patience: int  # holds of one job after which they mostly give up
    sweeping: float  # how often they act on the whole cluster
    _seen: dict[int, float] = field(default_factory=dict)  # code -> lately successful?

    @classmethod
    def draw(cls, name: str, seed: str, behaviours: Mapping[str, float]) -> Owner:
        """Make a person up; the mean over many is `behaviours`."""
        rng = Random(f"{seed}/owner/{name}")
        habit = {what: share * rng.gammavariate(1.5, 1 / 1.5) for what, share in behaviours.items()}
        return cls(
            name,
            rng,
            habit,
            skill=rng.uniform(0.4, 0.95),
            haste=rng.lognormvariate(0, 0.4),
            patience=rng.choice((2, 3, 4, 6, 9)),
            sweeping=rng.uniform(0, 0.6),
        )

    def decide(self, sight: Sight) -> OwnerDecision:
        """Weigh the habit by what the hold looks like, then draw."""
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
        """Remember the last outcomes of this hold code, the latest most."""
        before = self._seen.get(sight.code, 0.5)
        self._seen[sight.code] = 0.5 * before + 0.5 * succeeded

    def gets_it_right(self) -> bool:
        """Whether this time the fix is the right one."""
        return self.rng.random() < self.skill


_DELAYS = {  # seconds: the least, and the mean of what comes on top
    "release_now": (1, 4),
    "release_later": (15, 60),
    "fix": (8, 35),
    "remove": (4, 50),
    "ignore": (0, 1),
}


def _impression(sight: Sight, owner: str) -> dict[str, float]:
    """How a hold looks to somebody who reads its reason."""
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
    """Releases every hold after a delay that depends on nothing: unbiased truth.

    A job is released a number of times that was drawn before it ever ran, so that where
    the releases stop says nothing either.
    """

    name: str
    rng: Random
    skill: float = 0.0

    def decide(self, sight: Sight) -> OwnerDecision:
        """Always release; only the delay is drawn."""
        return OwnerDecision("release", 1 + self.rng.expovariate(1 / 35))

    def learn(self, sight: Sight, succeeded: bool) -> None:
        """Nothing is learnt: that would bias what is chosen next."""

    def gets_it_right(self) -> bool:
        """Never asked: a randomised owner does not fix."""
        return False


def population(
    count: int, seed: str, behaviours: Mapping[str, float], randomised: bool
) -> dict[str, Owner | RandomisedOwner]:
    """The owners of a run by name."""
    chosen = Random(f"{seed}/owners").sample(
        names.OWNER_NAMES, k=min(count, len(names.OWNER_NAMES))
    )
    if randomised:
        return {name: RandomisedOwner(name, Random(f"{seed}/owner/{name}")) for name in chosen}
    return {name: Owner.draw(name, seed, behaviours) for name in chosen}
