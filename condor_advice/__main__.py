"""`python -m condor_advice` is the same as `condor-advice`."""

from condor_advice.advise.front import main

main()
