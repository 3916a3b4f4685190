"""Insert deduplication: what makes two inserted blocks the same block (ClickHouse 26.9's unified hash)."""
