"""Job histories to features for failure models."""
