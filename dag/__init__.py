"""Drives preprocess/ and model/ on a pool: DAGMan sweeps and their tracking."""
