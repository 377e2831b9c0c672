"""The constant behind every hash of whole columns in this project."""

from __future__ import annotations

import numpy as np

# 2^64 over the golden ratio, odd: multiplying by it spreads what differs over all bits.
MIX = np.uint64(0x9E3779B97F4A7C15)
