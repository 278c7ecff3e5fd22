"""A tree of tables and further pairs, estimated from noisy ones, and rows that are drawn evenly and moved to fit them."""
