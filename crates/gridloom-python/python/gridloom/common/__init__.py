"""Small modules that others share."""
