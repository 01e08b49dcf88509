"""Token ids to text and back: tokenizer, incremental detokenizer, stop strings. No torch here."""
