"""The file shop.db contains an address: python3 address_file.py ADDRESS."""

import os
import pathlib
import sqlite3
import sys

import engine  # noqa: F401

address = sys.argv[1]
text = pathlib.Path("shop.db").read_bytes()


def is_on_trees(connection, schema="main"):
    (file,) = connection.execute("SELECT file FROM pragma_database_list WHERE name = ?", (schema,)).fetchone()
    return file.startswith("yesquel:")


def refused(*arguments, **named):
    """Returns whether a name cannot be opened or is not a database."""
    try:
        with sqlite3.connect(*arguments, **named) as connection:
            connection.execute("SELECT * FROM sqlite_schema")
    except sqlite3.Error:
        return True
    return False


# A path, a URI, an absolute path and a link all open the database at the address.
by_path = sqlite3.connect("shop.db")
assert is_on_trees(by_path)
by_path.execute("CREATE TABLE item(name TEXT)")
by_path.execute("INSERT INTO item VALUES('tea')")
by_path.commit()
os.symlink("shop.db", "link.db")
for name in "shop.db", os.path.abspath("shop.db"), "file:shop.db", "link.db", "file:" + address:
    connection = sqlite3.connect(name, uri=True)
    assert is_on_trees(connection), name
    assert connection.execute("SELECT name FROM item").fetchall() == [("tea",)], name
    connection.close()

# Attached, and read-only.
main = sqlite3.connect(":memory:")
main.execute("ATTACH 'shop.db' AS shop")
assert is_on_trees(main, "shop") and not is_on_trees(main)
assert main.execute("SELECT count(*) FROM shop.item").fetchone() == (1,)
only_read = sqlite3.connect("file:shop.db?mode=ro", uri=True)
try:
    only_read.execute("INSERT INTO item VALUES('milk')")
    raise AssertionError("a database for reading only was written")
except sqlite3.OperationalError as error:
    assert "readonly" in str(error), error

# The file itself is never written.
assert pathlib.Path("shop.db").read_bytes() == text

# An invalid address is an error, and the file stays unchanged; any other text is not a database.
for wrong in b"yesquel://", b"yesquel:?speed=9", b" " + text, b"shop.db", b"yesquel:" + b"x" * 5000:
    pathlib.Path("wrong.db").write_bytes(wrong)
    assert refused("wrong.db"), wrong
    assert pathlib.Path("wrong.db").read_bytes() == wrong

# The folder in an address is relative to the file, not to the working folder.
os.mkdir("deep")
pathlib.Path("deep/near.db").write_text("yesquel:trees-beside?durability=none\n")
near = sqlite3.connect("deep/near.db")
near.execute("CREATE TABLE t(a)")
assert is_on_trees(near) and os.path.isdir("deep/trees-beside") and not os.path.exists("trees-beside")
near.close()

# Empty and missing files become plain databases, as with SQLite.
pathlib.Path("empty.db").touch()
for name in "empty.db", "new.db":
    plain = sqlite3.connect(name)
    plain.execute("CREATE TABLE t(a)")
    plain.commit()
    assert not is_on_trees(plain) and os.path.getsize(name) > 0, name

by_path.execute("INSERT INTO item VALUES('milk')")
by_path.commit()
