"""The service layer: how any client reaches the engine."""
