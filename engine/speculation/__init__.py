"""Prompt-lookup speculation: drafts from a sequence's own tokens. No torch here."""
