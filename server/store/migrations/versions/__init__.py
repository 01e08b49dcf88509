"""One module for each step of the schema, in order."""
