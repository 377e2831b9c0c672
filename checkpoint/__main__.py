"""`python -m condor_checkpoint` is condor-checkpoint."""

from condor_checkpoint.cli import main

main()
