"""Walk through event logs in time, and answer before each release as `condor-advice` would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from condor_advice.advise.advice import Adviser
from condor_advice.advise.find_holds import read_logs
from condor_advice.advise.holds import hold_of_episode
from condor_advice.gather.errors import AdviceError
from condor_advice.model.held.data import HeldData, from_samples
from condor_advice.model.held.model import HeldModel
from condor_advice.model.held.replay import Replay, replay
from condor_advice.preprocess.holds.episode_store import KeptEpisodes
from condor_advice.preprocess.holds.labels import NO_LABEL
from condor_advice.preprocess.holds.outcomes import OUTCOMES


@dataclass(frozen=True, slots=True)
class Walk:
    """The releases of event logs, and what was answered right before each."""

    kept: KeptEpisodes
    data: HeldData
    model: HeldModel  # as it was before it learned anything
    played: Replay

    def answers(self) -> Iterator[dict[str, Any]]:
        """Yield the answer to each release, in the order of the releases."""
        predicted = self.played.predictions
        episodes = self.kept.every_hold()  # in the order of the data
        for place, row in enumerate(self.played.rows.tolist()):
            episode = episodes[row]
            assert episode.released_us is not None
            asked = datetime.fromtimestamp(episode.released_us / 1e6, UTC)
            chance, sure = float(predicted.p_success[place]), bool(predicted.sure[place])
            low, high = float(predicted.low[place]), float(predicted.high[place])
            # Learning moves chances and bounds; where a release pays is the model's as before.
            adviser = Adviser(self.model, at_release=True, now=asked)
            advice = adviser.judge(
                hold_of_episode(episode, self.kept, past=True), (chance, (low, high), sure)
            )
            label = int(self.played.label[place])
            yield {
                "job": str(episode.job),
                "hold_number": episode.number,
                "asked_at": asked.isoformat().replace("+00:00", "Z"),
                "p_success": round(chance, 6),
                "low": round(low, 6),
                "high": round(high, 6),
                "sure": sure,
                "verdict": advice.verdict.value,
                "outcome": OUTCOMES[int(self.data.outcome[row])].value,
                "changed": bool(self.data.changed[row]),
                "succeeded": None if label == NO_LABEL else label == 1,
                "outcomes_learned": int(self.played.learned[place]),
            }


def walk(
    model: HeldModel,
    logs: Sequence[str],
    zone: str | None = None,
    *,
    learn: bool = False,
    recorded: Callable[[], HeldData] | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Walk:
    """Read event logs and answer right before each release.

    With `learn`, the model adapts to outcomes as they become known; `recorded` gives episodes of
    other pools to learn from beside them.
    """
    kept = read_logs(logs, zone)
    data = from_samples(kept.samples(), logs[0])
    if not (data.released >= 0).any():
        raise AdviceError(
            f"{', '.join(logs)}: no hold was released, so there is nothing to answer; name logs "
            "with 013 events"
        )
    others = recorded() if learn and recorded is not None else None
    return Walk(kept, data, model, replay(model, data, learn=learn, recorded=others, say=say))
