"""The models that a model for held jobs is made of."""
