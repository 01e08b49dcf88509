"""Lectern's inference engine: token ids in, text and finish detail out. Import `engine.api`."""
