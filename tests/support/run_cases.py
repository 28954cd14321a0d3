"""Runs the named unittest cases. Exits 77 when every one of them was skipped, so that ctest counts
them as skipped, with the reason."""
import sys
import unittest

if __name__ == "__main__":
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout, failfast=False).run(suite)
    for case, why in result.skipped:
        print(f"skipped {case}: {why}")
    if not result.wasSuccessful() or result.testsRun == 0:
        sys.exit(1)
    sys.exit(77 if len(result.skipped) == result.testsRun else 0)
