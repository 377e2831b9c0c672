"""Events to hold episodes and job tables; those to tensors, features, labels and splits."""
