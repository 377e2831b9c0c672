"""Run the benchmarks and write their lines into docs/results.md: `make results`.

Nothing on that page is typed in: each benchmark prints JSON lines, with the date, and they
are kept as they came. A benchmark that fails stays on the page as failed.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
# Larger reports that commands of their own write.
REPORTS = {
    "results-held.md": "models for held jobs",
    "results-failures.md": "failure models on public workloads",
    "checkpoint-results.md": "checkpoint policies, and the in-job risk model",
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all, and renew their part of the page."""
    kept = _lines_of(PAGE) if names and PAGE.exists() else {}
    failed = []
    for script in sorted((ROOT / "bench").glob("*.py")):
        if names and script.stem not in names:
            continue
        print(f"bench/{script.name} ...", file=sys.stderr, flush=True)
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode:
            failed.append(script.name)
            lines.append(json.dumps({"benchmark": script.stem, "failed": done.stderr[-300:]}))
        kept[script.name] = lines
    _write(kept)
    return 1 if failed else 0


def _lines_of(page: Path) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    name = ""
    for line in page.read_text().splitlines():
        if line.startswith("## bench/"):
            name = line.removeprefix("## bench/")
        elif line.startswith("{") and name:
            lines.setdefault(name, []).append(line)
    return lines


def _write(lines: dict[str, list[str]]) -> None:
    text = [
        "# Results",
        "",
        "Written by `make results`; each line is what a benchmark printed. Ratios were measured",
        "side by side in one run. Last run: "
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {platform.machine()}.",
        "",
        *(
            f"- [{title}]({page})"
            for page, title in REPORTS.items()
            if (PAGE.parent / page).exists()
        ),
    ]
    for name in sorted(lines):
        text += ["", f"## bench/{name}", "", "```json", *lines[name], "```"]
    PAGE.write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
