"""CPython's own tests of sqlite3: python3 cpython.py FOLDER, which contains test_sqlite3. Prints the
outcome of each test. With YESQUEL_TEST_DATABASES the tests run on trees.
"""

import os
import sys
import unittest

import engine  # noqa: F401
import test

if "YESQUEL_TEST_DATABASES" in os.environ:
    import redirect  # noqa: F401

# Debian's package of tests lacks these.
test.__path__.append(sys.argv[1])

MODULES = "backup dbapi dump factory hooks regression transactions types userfunctions".split()


class Outcomes(unittest.TextTestResult):
    """The outcome of each test, without details that differ between runs."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.outcomes = {}

    def stopTest(self, test):
        super().stopTest(test)
        self.outcomes.setdefault(test.id(), "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcomes[test.id()] = "skipped"

    def addError(self, test, error):
        super().addError(test, error)
        self.outcomes[test.id()] = "failed"

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.outcomes[test.id()] = "failed"

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.outcomes[test.id()] = "failed"


suite = unittest.defaultTestLoader.loadTestsFromNames(f"test.test_sqlite3.test_{module}" for module in MODULES)
result = unittest.TextTestRunner(stream=sys.stderr, resultclass=Outcomes, verbosity=0).run(suite)
for name, outcome in sorted(result.outcomes.items()):
    print(name.removeprefix("test.test_sqlite3."), outcome)
