"""The paged KV cache: blocks, tables, prefix reuse, and the tensors behind them."""
