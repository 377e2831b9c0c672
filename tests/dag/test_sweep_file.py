"""A sweep file is read as W&B reads it, and all its problems are reported at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from condor_advice.dag.space import DISTRIBUTIONS
from condor_advice.dag.sweepfile import BadSweepFile, SweepFile, bands_of, read_sweep_file
from condor_advice.gather.errors import UsageError

KNOWN = {"learning_rate": 0.003, "hidden": 32, "attention": True, "epochs": 20, "max_steps": 64}
METRICS = ("validation_loss", "validation_roc_auc")


def read(tmp_path: Path, text: str) -> SweepFile:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return read_sweep_file(path, KNOWN, METRICS, ["pool_a", "pool_b"])


def problems(tmp_path: Path, text: str) -> list[tuple[int, str]]:
    with pytest.raises(BadSweepFile) as caught:
        read(tmp_path, text)
    for line, what in caught.value.problems:
        assert f"sweep.yaml:{line}: {what}" in str(caught.value)
    return caught.value.problems


GOOD = """\
program: train.py
name: better networks
project: held jobs
method: bayes
metric:
  name: validation_roc_auc
  goal: maximize
  target: 0.99
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-4, max: 1e-1}
  hidden: {values: [16, 32, 64]}
  attention: {values: [true, false], probabilities: [0.75, 0.25]}
  epochs: {value: 12}
early_terminate: {type: hyperband, min_iter: 2, eta: 3}
run_cap: 40
condor_advice:
  data: [{recording: pool_a}, {recording: pool_b}]
  split: {train: 0.5, validation: 0.25, gap_seconds: 0}
  seeds: [1, 2]
  resources: {cpus: 2, memory_mb: 4000, requirements: 'OpSysMajorVer >= 9'}
  environment: {image: 'docker://example.org/torch:2'}
  tracking: off
"""


def test_a_good_file_is_read_with_its_defaults(tmp_path):
    sweep = read(tmp_path, GOOD)
    assert sweep.method == "bayes"
    assert (sweep.metric.name, sweep.metric.goal, sweep.metric.target) == (
        "validation_roc_auc",
        "maximize",
        0.99,
    )
    kinds = {p.name: p.distribution for p in sweep.parameters}
    assert kinds == {
        "learning_rate": "log_uniform_values",
        "hidden": "categorical",
        "attention": "categorical_w_probabilities",
        "epochs": "constant",
    }
    [rate] = [p for p in sweep.parameters if p.name == "learning_rate"]
    assert rate.settings["min"] == 1e-4  # YAML 1.1 would read it as text
    assert sweep.hyperband is not None
    assert sweep.hyperband.bands[:3] == (2, 6, 18)
    assert [source.value for source in sweep.sources] == ["pool_a", "pool_b"]
    assert sweep.seeds == (1, 2)
    assert sweep.resources.cpus == 2
    assert sweep.resources.retries == 2
    assert sweep.environment.kind == "image"
    assert sweep.tracking == "off"
    assert "condor_advice" not in sweep.config, "W&B gets only its own keys"
    assert "program" not in sweep.config


def test_every_problem_is_named_at_once_with_its_line(tmp_path):
    found = problems(
        tmp_path,
        """\
method: annealing
metric: {name: loss, goal: lower}
parameters:
  learning_rate: {min: 1.0, max: 0.1}
  hidden: {distribution: gaussian}
  hiden: {values: [1]}
  attention: {values: [1, 2]}
  epochs: {values: [2, 3], probabilities: [0.2, 0.2]}
  max_steps: {distribution: q_uniform, min: 1.5, max: 9, q: 0.5}
early_terminate: {type: hyperband}
colour: red
condor_advice:
  data: [{recording: pool_z}, {file: x}]
  split: {train: 0.9, validation: 0.2}
  seeds: [1, 1]
  resources: {cpus: 0, gpus: 1}
  environment: conda
""",
    )
    lines = [line for line, _ in found]
    assert lines == sorted(lines)
    messages = {}
    for line, text in found:
        messages.setdefault(line, []).append(text)
    expected = {
        1: "method must be grid or random or bayes, not 'annealing'",
        2: "name must be one that trials report (validation_loss, validation_roc_auc), not 'loss'",
        4: "learning_rate: min 1.0 is above max 0.1",
        5: "hidden: unknown distribution 'gaussian'; use one of constant,",
        6: "unknown parameter 'hiden'; use one of learning_rate, hidden,",
        7: "attention must be true or false, but 1 is possible here",
        8: "epochs: probabilities add up to 0.4, not 1",
        9: "max_steps must be a whole number, but 1.5 is possible here",
        10: "early_terminate needs min_iter, or max_iter and s",
        11: "a sweep file: unknown key 'colour'; use one of project,",
        13: "no recording 'pool_z'; choose from: pool_a, pool_b",
        14: "train and validation leave nothing to test on",
        15: "seeds must be a list of whole numbers, not [1, 1]",
        16: "cpus must be a whole number, at least 1, not 0",
        17: "environment must be bundle, {python: PATH} or {image: NAME}",
    }
    for line, text in expected.items():
        assert any(message.startswith(text) for message in messages[line]), (
            line,
            messages.get(line),
        )
    assert "goal must be minimize or maximize, not 'lower'" in messages[2]
    assert any(message.startswith("resources: unknown key 'gpus'") for message in messages[16])


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("a: [1, 2", 1, "not valid YAML"),
        ("- 1\n- 2\n", 1, "the sweep file must be a mapping"),
        ("method: grid\nmethod: random\n", 2, "the sweep file: method appears twice"),
        ("method: random\nmetric: {name: validation_loss}\n", 1, "no parameters"),
        ("method: random\nmetric: {name: validation_loss}\n", 1, "no condor_advice"),
    ],
)
def test_an_incomplete_sweep_file_is_refused_with_the_reason(tmp_path, text, line, message):
    reported = problems(tmp_path, text)
    assert any(at == line and told.startswith(message) for at, told in reported), reported


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot read the sweep file"):
        read_sweep_file(tmp_path / "none.yaml", KNOWN, METRICS)


def test_a_grid_needs_choices(tmp_path):
    found = problems(tmp_path, GOOD.replace("method: bayes", "method: grid"))
    assert [line for line, _ in found] == [10, 12]
    assert "learning_rate: a grid needs choices" in found[0][1]


def test_missing_data_is_reported_before_anything_is_written(tmp_path):
    text = GOOD.replace(
        "[{recording: pool_a}, {recording: pool_b}]",
        "[{logs: EventLog}, {store: none.sqlite}, {export: here}]",
    )
    messages = [text for _, text in problems(tmp_path, text)]
    assert messages[0] == f"{tmp_path}/EventLog: no event log here"
    assert messages[1].startswith(f"{tmp_path}/none.sqlite: no store")
    assert messages[2].startswith(f"{tmp_path}/here: no export")


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_every_distribution_that_wandb_documents_is_accepted(tmp_path, kind):
    settings = {
        "constant": "value: 0.5",
        "categorical": "values: [0.1, 0.5]",
        "categorical_w_probabilities": "values: [0.1, 0.5], probabilities: [0.5, 0.5]",
        "int_uniform": "min: 1, max: 3",
        "uniform": "min: 0.1, max: 1",
        "log_uniform": "min: -3, max: 0",
        "q_log_uniform": "min: -3, max: 2, q: 0.1",
        "inv_log_uniform": "min: 0, max: 3",
        "q_uniform": "min: 0, max: 3, q: 0.5",
    }.get(kind, "min: 0.1, max: 1" if kind.endswith("_values") else "")
    entry = ", ".join(part for part in (f"distribution: {kind}", settings) if part)
    text = GOOD.replace("{distribution: log_uniform_values, min: 1e-4, max: 1e-1}", f"{{{entry}}}")
    [found] = [p for p in read(tmp_path, text).parameters if p.name == "learning_rate"]
    assert found.distribution == kind
    assert set(found.settings) == set(DISTRIBUTIONS[kind])


def test_bands_go_up_from_min_iter_or_down_from_max_iter():
    assert bands_of(3, 2, None, None, most=60) == (2, 6, 18, 54)
    assert bands_of(3, None, 27, 2) == (3, 9)
    assert bands_of(2, None, 3, 5) == (1,)
