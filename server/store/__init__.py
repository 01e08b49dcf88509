"""What is kept: the schema, its migrations, and small repositories. Imports no other layer."""
