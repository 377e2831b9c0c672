"""Owners choose by what they see, never by the cause."""

from __future__ import annotations

from collections import Counter
from random import Random

from condor_advice.lab.owners import BEHAVIOURS, Owner, RandomisedOwner, Sight, population

MEMORY = Sight(21, 102, "Error from slot1@a: memory usage exceeded request_memory", 1)
SERVER = Sight(
    13, 256, "failure using protocol http. Details: The requested URL returned error: 503", 1
)


def choices(owners: list[Owner], sight: Sight, times: int = 60) -> Counter[str]:
    return Counter(owner.decide(sight).action for owner in owners for _ in range(times))


def crowd(behaviours: dict[str, float] | None = None) -> list[Owner]:
    return [Owner.draw(f"user{n}", "1", behaviours or BEHAVIOURS) for n in range(40)]


def test_memory_holds_are_fixed_more_often_than_server_faults() -> None:
    memory, server = choices(crowd(), MEMORY), choices(crowd(), SERVER)
    assert memory["fix"] > 2 * server["fix"]
    assert server["release"] > memory["release"]


def test_every_behaviour_occurs() -> None:
    assert set(choices(crowd(), SERVER)) == {"release", "fix", "remove", "ignore"}


def test_the_share_of_behaviours_is_a_setting() -> None:
    removers = crowd({**BEHAVIOURS, "remove": 5.0})
    assert choices(removers, SERVER)["remove"] > 2 * choices(crowd(), SERVER)["remove"]


def test_people_give_up_on_a_job_that_is_held_again_and_again() -> None:
    often = Sight(SERVER.code, SERVER.subcode, SERVER.reason, holds=10)
    assert choices(crowd(), often)["remove"] > 2 * choices(crowd(), SERVER)["remove"]


def test_people_learn_from_the_outcomes_of_their_releases() -> None:
    hopeful, burnt = crowd(), crowd()
    for owner in hopeful:
        for _ in range(4):
            owner.learn(SERVER, succeeded=True)
    for owner in burnt:
        for _ in range(4):
            owner.learn(SERVER, succeeded=False)
    assert choices(hopeful, SERVER)["release"] > choices(burnt, SERVER)["release"]


def test_a_randomised_owner_releases_everything_whatever_it_is() -> None:
    owner = RandomisedOwner("mei", Random(1))
    decisions = [owner.decide(sight) for sight in (MEMORY, SERVER) for _ in range(200)]
    assert {decision.action for decision in decisions} == {"release"}
    assert not any(decision.whole_cluster for decision in decisions)


def test_the_same_seed_makes_the_same_people() -> None:
    def words(seed: str) -> list[tuple[str, str, float]]:
        people = population(8, seed, BEHAVIOURS, randomised=False)
        return [
            (name, d.action, d.delay)
            for name, owner in people.items()
            for d in [owner.decide(MEMORY)]
        ]

    assert words("1") == words("1")
    assert words("1") != words("2")
