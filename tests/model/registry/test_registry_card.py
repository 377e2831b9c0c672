"""Cards, pictures and the report page: complete, true to the figures, and on their own."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from small_models import write_model

from condor_advice.model import html_report, plots
from condor_advice.model.html_report import Section
from condor_advice.model.metrics import coverage_at, coverage_risk
from condor_advice.model.plots import PlotData
from condor_advice.model.registry import card, manifest


@pytest.fixture(scope="module")
def judged() -> PlotData:
    rng = np.random.default_rng(0)
    p = rng.random(400)
    label = (rng.random(400) < p).astype(np.float64)
    return PlotData(
        label,
        {"model": p, "rules": np.full(400, 0.5)},
        rng.choice(["memory", "input_missing"], 400).tolist(),
        importance={"hold_code": 1.0, "job_age": 0.5},
        risk=0.05,
    )


@pytest.fixture(scope="module")
def pictures(judged: PlotData, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("matplotlib")
    return plots.draw_all(tmp_path_factory.mktemp("pictures"), judged)


def size_of(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_every_picture_is_drawn(pictures: dict[str, Path]) -> None:
    assert {path.name for path in pictures.values()} == {
        "roc.png",
        "precision-recall.png",
        "reliability.png",
        "coverage-risk.png",
        "confusion-by-reason.png",
        "importance.png",
    }
    for path in pictures.values():
        width, height = size_of(path)
        assert width > 300
        assert height > 100


def test_pictures_are_drawn_without_a_screen_and_matplotlib_is_loaded_late() -> None:
    code = (
        "import sys; from condor_advice.model import plots\n"
        "from condor_advice.model.registry import card\n"
        "print('matplotlib' in sys.modules)\n"
        "plots.pyplot(); import matplotlib; print(matplotlib.get_backend())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.lower().split() == ["false", "agg"]


def test_coverage_and_risk_give_the_surest_answers_first_and_ties_together() -> None:
    label = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    p = np.array([0.9, 0.1, 0.2, 0.6, 0.6])
    covered, wrong = coverage_risk(p, label)
    assert covered.tolist() == [0.4, 0.6, 1.0]
    assert wrong.tolist() == pytest.approx([0.0, 1 / 3, 2 / 5])
    empty, _ = coverage_risk(np.empty(0), np.empty(0))
    assert len(empty) == 0
    # Of answers that are all alike, none can be given before the others.
    assert coverage_at(np.full(4, 0.9), np.array([1.0, 1.0, 0.0, 0.0]), 0.05) == 0.0


def test_one_class_alone_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    only = PlotData(np.ones(5), {"model": np.linspace(0.2, 0.9, 5)}, ["memory"] * 5)
    assert len(plots.draw_all(tmp_path, only)) == 5


class Resources(HTMLParser):
    """Everything that a page would fetch, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_but_itself(pictures: dict[str, Path]) -> None:
    text = html_report.page(
        "Evaluation <of> a model",
        [
            Section(
                "Figures & more",
                ["a <b> paragraph"],
                [[["model", "Brier"], ["<script>alert(1)</script>", 0.12345], ["x", None]]],
                pictures,
            )
        ],
    )
    found = Resources()
    found.feed(text)
    assert len(found.fetched) == len(pictures)
    assert all(one.startswith("data:image/png;base64,") for one in found.fetched)
    assert "script" not in found.tags
    assert "link" not in found.tags
    assert not re.search(r"url\(|@import|https?://", text)
    assert "&lt;script&gt;" in text
    assert ">0.123<" in text
    assert "a &lt;b&gt; paragraph" in text


def test_a_card_says_what_the_model_was_made_from(tmp_path: Path, judged: PlotData) -> None:
    pytest.importorskip("matplotlib")
    place = write_model(tmp_path, "one", 1.0)
    found = manifest.verify(place)
    path = card.write(place, found, judged, {"episodes": 400})
    text = path.read_text()
    assert "# Model one" in text
    assert "- Sources: made by hand" in text
    assert "| validation | 0.200 | 0.700 |" in text
    assert f"| trees.npz | {found.files['trees.npz'].bytes:,} |" in text
    for file in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text):
        size_of(path.parent / file)
    assert text.count("![") == 6
    assert manifest.verify(place) == found  # the card is no part of what is loaded


def test_a_card_says_what_was_taken_for_failed(tmp_path: Path) -> None:
    found = manifest.verify(write_model(tmp_path, "one", 1.0))
    repaired = replace(found, trained_on={"released_after_a_repair": 7})
    assert "- Released after a repair (not trained on): 7" in card.markdown(repaired)
    assumed = replace(repaired, settings={"repaired_failed": True})
    assert "released after a repair, counted as failures: 7" in card.markdown(assumed)


def test_a_card_without_pictures_and_with_odd_figures_still_reads(tmp_path: Path) -> None:
    place = write_model(tmp_path, "one", 1.0)
    found = manifest.verify(place)
    text = card.markdown(found)
    assert "![" not in text
    nested = {"test": {"model": {"brier": 0.1, "note": "x"}, "rules": {"brier": None}}, "n": 3}
    assert card.flat_metrics(nested) == {
        "all": {"n": 3},
        "test, model": {"brier": 0.1},
        "test, rules": {"brier": None},
    }
