"""Runs the named unittest cases. Exits 77 when every one of them was skipped, so that ctest counts
them as skipped, with the reason."""
import sys
import unittest

if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout, failfast=False).run(suite)
    for case, why in result.skipped:
        print(f"skipped {case}: {why}")
    if not result.wasSuccessful() or not (result.testsRun or result.skipped):
        sys.exit(1)
    # A class that is skipped as a whole, by its setUpClass, has no cases that ran.
    cases = [case for case, _ in result.skipped if isinstance(case, unittest.TestCase)]
    sys.exit(77 if result.skipped and len(cases) == result.testsRun else 0)
