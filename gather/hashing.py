"""The multiplier used wherever this project hashes whole columns."""

from __future__ import annotations

import numpy as np

# 2^64 divided by the golden ratio, made odd: multiplying by it spreads differences over all bits.
MIX = np.uint64(0x9E3779B97F4A7C15)
