"""Whether the model still fits this access point: drift, and how good its advice was.

`status` shows this. Only the newest holds count, so that it takes a second or two whatever the
size of the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from condor_advice.gather.errors import AdviceError
from condor_advice.gather.store import Store
from condor_advice.preprocess.holds.episode_store import KeptEpisodes

if TYPE_CHECKING:
    from condor_advice.model.held.data import HeldData
    from condor_advice.model.held.model import HeldModel
    from condor_advice.model.registry.manifest import ModelFiles

NEWEST_HOLDS = 12_000
# At most this many holds with a known outcome are predicted, spread evenly over time.
MOST_PREDICTED = 3_000
FEEDBACK_DAYS = 90.0
_WORDS = {
    "hold_reasons": "the mix of hold reasons",
    "features": "the jobs and the pool around their holds",
    "calibration": "the outcomes of releases",
}


def health(store: Store, now: float) -> dict[str, Any]:
    """Return drift and feedback of the model in use; a failure of one never hides the other."""
    report: dict[str, Any] = {"model": None, "drift": [], "drift_note": None, "feedback": None}
    kept = KeptEpisodes(store)
    try:
        files = _current_model()
        report["model"] = files.manifest.name
        if kept.ready:
            report |= _drift(files, kept)
    except AdviceError as error:
        report["drift_note"] = str(error)
    if not kept.ready:
        report["drift_note"] = (
            "the store has no hold episodes of this version; run `condor-advice gather` once"
        )
        return report
    try:
        report["feedback"] = _feedback(kept, store, now)
    except AdviceError as error:
        report["feedback_note"] = str(error)
    return report


def warnings(health_report: Mapping[str, Any]) -> list[str]:
    """Return a line for each signal that has drifted from training, with its date."""
    lines = []
    for signal in health_report["drift"]:
        if not signal["drifted"]:
            continue
        name = _WORDS[signal["signal"]]
        since = "in all recent holds"
        if not signal["from_the_start"]:
            since = f"since {signal['began'][:10]}"
        value = f"{signal['value']:.2f}, normally up to {signal['limit']:.2f}"
        lines.append(f"drift: {name}: unlike the model's training data {since} ({value})")
        lines += [f"  {detail}" for detail in signal["details"]]
    if lines:
        lines.append(
            "  train on this store with `condor-advice train --store FILE --since 90d`: the new "
            "model is used if it is no worse"
        )
    return lines


def _current_model() -> ModelFiles:
    from condor_advice.model.registry import manifest
    from condor_advice.model.registry.versions import Registry

    return manifest.read(Registry().current())


def _drift(files: ModelFiles, kept: KeptEpisodes) -> dict[str, Any]:
    from condor_advice.model.held import drift
    from condor_advice.model.held.data import from_samples
    from condor_advice.model.held.model import HeldModel
    from condor_advice.preprocess.holds.features import FEATURE_NAMES

    if drift.REFERENCE_FILE not in files.content:
        name = files.manifest.name
        return {"drift_note": f"model {name} has no reference data for drift; train it again"}
    if kept.feature_names != FEATURE_NAMES:
        note = "the store's hold episodes are of another version; run `condor-advice gather` once"
        return {"drift_note": note}
    samples = kept.samples(kept.since_newest(NEWEST_HOLDS))
    data = from_samples(samples, "store")
    texts = {_bucket(number): text for number, text in samples.names.templates.items()}
    observed = drift.Observed.of(data, _predicted(HeldModel.load(files.directory), data))
    signals = drift.assess(files.arrays(drift.REFERENCE_FILE, finite=False), observed, texts=texts)
    result: dict[str, Any] = {"drift": [signal.as_dict() for signal in signals]}
    if all(signal.value is None for signal in signals):
        result["drift_note"] = f"{len(data):,} holds are too few to measure drift"
    return result


def _predicted(model: HeldModel, data: HeldData) -> Any:
    """Return the model's probabilities for holds with a known outcome, NaN for all others."""
    import numpy as np

    from condor_advice.model.held.parts import Inputs

    p = np.full(len(data), np.nan)
    rows = data.labelled
    if len(rows) > MOST_PREDICTED:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_PREDICTED).astype(np.int64)]
    if len(rows):
        chosen = data.take(rows)
        p[rows] = model.predict(Inputs.of(chosen)).p_success
    return p


def _bucket(template: int) -> int:
    from condor_advice.preprocess.holds.templates import bucket_of

    return bucket_of(template)


def _feedback(kept: KeptEpisodes, store: Store, now: float) -> dict[str, Any]:
    from condor_advice.gather.ledger import GivenAdvice, Ledger, ledger_paths
    from condor_advice.model.held.feedback import join, summarise

    since = now - FEEDBACK_DAYS * 86400
    given: list[GivenAdvice] = []
    for path in ledger_paths(store.path):
        with Ledger(path, readonly=True) as ledger:
            given += ledger.given(since=since)
    return {"days": FEEDBACK_DAYS, **summarise(join(given, kept))}


def feedback_words(health_report: Mapping[str, Any]) -> Sequence[str]:
    """Describe how good the advice was, as lines for people."""
    from condor_advice.model.held.feedback import in_words

    if not health_report["feedback"]:
        return []
    return in_words(health_report["feedback"])
