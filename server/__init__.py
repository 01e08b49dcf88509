"""The server: application (`app`), service (`service`) and store (`store`) around the engine."""
