"""Model definitions, configuration reading and weight loading."""
