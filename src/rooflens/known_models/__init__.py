"""Well-known models: the sizes of each as data, and their names."""

from rooflens.known_models.lookup import KnownModel, known_model, known_models, unknown_model
