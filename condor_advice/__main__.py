"""Run condor-advice with `python -m condor_advice`."""

from condor_advice.advise.front import main

main()
