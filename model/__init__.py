"""Tensors and features to trained, calibrated, explained and registered models."""
