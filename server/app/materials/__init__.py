"""Course materials: one parser per format, and the import of files into the store."""
