"""Tables: closed segments as Parquet, and what is computed from them."""
