"""The names that `gather` offers to other packages."""

from __future__ import annotations

from condor_advice import gather


def test_every_listed_name_can_be_imported():
    assert all(getattr(gather, name).__name__ == name for name in gather.__all__)
    assert not hasattr(gather, "nothing_of_this_name")
