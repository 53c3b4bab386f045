"""Makes the module sqlite3 open databases on trees, for test suites that use plain names.

Import it before the suite. YESQUEL_TEST_DATABASES is an address with braces in place of the database's
name. `:memory:` opens a new database, which is removed with the suite. A missing or empty file also
becomes a new database: its address is written into the file. The next connection to the file opens the
same database; after the file is removed, the next one opens a new database.
"""

import itertools
import os
import sqlite3

import engine  # noqa: F401

DATABASES = os.environ["YESQUEL_TEST_DATABASES"]

plain_connect = sqlite3.connect
numbers = itertools.count()


def new_address():
    return DATABASES.replace("{}", f"p{os.getpid()}x{next(numbers)}")


def prepare(name):
    """Writes the address of a new database into a missing or empty file."""
    if name == "" or name.startswith("file:") or os.path.isdir(name):
        return
    if not os.path.exists(name) or os.path.getsize(name) == 0:
        try:
            with open(name, "w") as file:
                file.write(new_address() + "\n")
        except OSError:
            # The file cannot be opened as a database either.
            pass


def connect(database, *positional, **named):
    name = os.fsdecode(database)
    if name != ":memory:":
        prepare(name)
        return plain_connect(database, *positional, **named)
    if len(positional) > 6:
        positional = (*positional[:6], True, *positional[7:])
    else:
        named["uri"] = True
    return plain_connect("file:" + new_address(), *positional, **named)


sqlite3.connect = sqlite3.dbapi2.connect = connect


def assert_engine():
    """Fails unless the tests open databases on trees."""
    connection = sqlite3.connect(":memory:")
    (file,) = connection.execute("SELECT file FROM pragma_database_list").fetchone()
    connection.close()
    assert file.startswith("yesquel:"), file


assert_engine()
