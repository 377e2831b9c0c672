"""Events to hold episodes: what was known at each hold, and what came of it."""
