"""Release or remove? Advice for held HTCondor jobs."""

__version__ = "0.1.0"
