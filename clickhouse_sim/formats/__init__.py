"""Files in, typed blocks out: CSV and Parquet, cut into blocks of a given number of rows."""
