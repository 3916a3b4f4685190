"""ClickHouse SQL in, `replica.commands` and queries out.

CREATE and INSERT are read by a small grammar on sqlglot's tokenizer, because their expressions must reach the
replica in the words they were written in. SELECT is parsed by sqlglot's ClickHouse grammar and runs on DuckDB in
the client, over scans of replicas.
"""
