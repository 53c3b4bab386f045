"""Makes the module sqlite3 use databases on trees, for suites that know nothing of them.

Import it before what it is for. YESQUEL_TEST_DATABASES is an address with a pair of braces in the place
of a database's name. `:memory:` is then a new database, gone with the suite; so is a file that is not
there or is empty, into which the address is written: whoever opens the file again finds the same
database, and who removes it begins anew.
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
    """Makes a file that holds an address of a name that would be a new database."""
    if name == "" or name.startswith("file:") or os.path.isdir(name):
        return
    if not os.path.exists(name) or os.path.getsize(name) == 0:
        try:
            with open(name, "w") as file:
                file.write(new_address() + "\n")
        except OSError:
            # It cannot be opened as a database either.
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
    """Stops unless what the tests open is on trees."""
    connection = sqlite3.connect(":memory:")
    (file,) = connection.execute("SELECT file FROM pragma_database_list").fetchone()
    connection.close()
    assert file.startswith("yesquel:"), file


assert_engine()
