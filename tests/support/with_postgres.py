"""Runs a program with a PostgreSQL of its own: with_postgres.py PROGRAM ARGS…, which finds its URL
in BILLOW_TEST_POSTGRES."""
import os
import subprocess
import sys

import postgres


def main():
    why = postgres.unusable()
    if why:
        print(f"skipped: {why}")
        return 77
    server = postgres.Postgres()
    try:
        return subprocess.run(
            sys.argv[1:],
            env={**os.environ, "BILLOW_TEST_POSTGRES": server.database("contract")},
            check=False,
        ).returncode
    finally:
        server.close()


if __name__ == "__main__":
    sys.exit(main())
