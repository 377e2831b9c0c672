"""Versions of models, the gate between them, their manifests and cards."""
