"""The life of an insert: `sink` splits and writes, `block_number` takes a number, `commit` makes it count."""
