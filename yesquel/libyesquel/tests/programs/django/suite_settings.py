"""Settings for Django's own tests: on trees if YESQUEL_TEST_DATABASES is an address with braces in
place of the database's name, otherwise on files in the working folder.
"""

import os

import engine  # noqa: F401

ADDRESS = os.environ.get("YESQUEL_TEST_DATABASES")


def database(name):
    file = f"file:{ADDRESS.replace('{}', name)}" if ADDRESS else os.path.abspath(f"{name}.db")
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": file, "TEST": {"NAME": file}}


DATABASES = {alias: database(alias) for alias in ("default", "other")}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
SECRET_KEY = "of no use"
USE_TZ = False


def assert_trees(sender, connection, **named):
    """Fails unless each connection uses the expected database; some tests choose the name themselves."""
    named_ours = str(connection.settings_dict["NAME"]).startswith("file:yesquel:")
    with connection.cursor() as cursor:
        cursor.execute("SELECT file FROM pragma_database_list WHERE name = 'main'")
        (file,) = cursor.fetchone()
    assert file.startswith("yesquel:") == named_ours, file


from django.db.backends.signals import connection_created

connection_created.connect(assert_trees)
