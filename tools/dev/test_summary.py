#!/usr/bin/env python3
"""What ctest ran, from its JUnit report: counts, every skipped test with its reason, the slowest
tests. A second report is of the failed ones, run again alone: what passes there is unsteady, which
is named and is to be mended, but does not fail the run."""
import collections
import os
import re
import sys
import xml.etree.ElementTree as ET

# How our tests report a reason: run_cases.py, GoogleTest's GTEST_SKIP, formatted.py.
REASONS = (
    re.compile(r"^skipped \S+(?: \S+)?: (.+)$", re.M),
    re.compile(r"^(?:.*: )?Skipped\n(.+)$", re.M),
    re.compile(r"^skipped: (.+)$", re.M),
)


def reason(case):
    output = case.findtext("system-out") or ""
    for pattern in REASONS:
        match = pattern.search(output)
        if match:
            return match.group(1).strip()
    skipped = case.find("skipped")
    return (skipped.get("message") if skipped is not None else None) or "no reason given"


def tests_in(path):
    return list(ET.parse(path).getroot().iter("testcase"))


def main(path, alone=""):
    cases = tests_in(path)
    passed_alone = set()
    if os.path.exists(alone):
        passed_alone = {c.get("name") for c in tests_in(alone) if c.get("status") == "run"}
    bad = [c for c in cases if c.find("failure") is not None]
    unsteady = [c for c in bad if c.get("name") in passed_alone]
    failed = [c for c in bad if c not in unsteady]
    skipped = [
        c
        for c in cases
        if c.get("status") in ("notrun", "disabled") or c.find("skipped") is not None
    ]
    # A class of end-to-end cases passes even if some of its cases were skipped; these count here
    # too.
    partly = [
        (c, why)
        for c in cases
        if c not in skipped
        for why in re.findall(r"^skipped (.+)$", c.findtext("system-out") or "", re.M)
    ]
    print(
        f"\n{len(cases)} tests: {len(cases) - len(bad) - len(skipped)} passed,"
        f" {len(failed)} failed, {len(unsteady)} unsteady, {len(skipped)} skipped; {len(partly)}"
        " cases skipped within passed tests"
    )
    why = collections.defaultdict(list)
    for case in skipped:
        why[reason(case)].append(case.get("name"))
    for text, names in sorted(why.items()):
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        print(f"  skipped: {shown}: {text}")
    for case, text in partly:
        print(f"  skipped in {case.get('name')}: {text}")
    for case in failed:
        print(f"  failed: {case.get('name')}")
    for case in unsteady:
        print(f"  unsteady, failed beside others and passed alone: {case.get('name')}")
    slow = sorted(cases, key=lambda c: -float(c.get("time") or 0))[:10]
    print(
        "slowest: " + ", ".join(f"{c.get('name')} {float(c.get('time') or 0):.0f} s" for c in slow)
    )
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
