"""Acting on advice: what may be done, doing it, and what came of it."""
