"""Files and frames, read and checked by DuckDB or by Spark, as tables of users and their lists.

All errors name the file, the column and the first row that breaks a rule.
"""
