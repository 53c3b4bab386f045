"""Fails on import unless this process uses the expected SQLite."""

import os
import sqlite3

source = os.environ.get("YESQUEL_TEST_SOURCE_ID")
(found,) = sqlite3.connect(":memory:").execute("SELECT sqlite_source_id()").fetchone()
assert source is None or found == source, found
