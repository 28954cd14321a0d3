#!/usr/bin/env python3
"""Checks that no price of data/offers.txt is older than a year unless data/stale_prices.txt says why.

    tools/catalogue/check_age.py [--today YYYY-MM-DD] [DATA_DIR]

Prices move; an old one that nobody has looked at misleads. A provider that cannot be collected anew
is listed in stale_prices.txt with a reason and a date, and the mark itself expires after a year.
"""
import argparse
import datetime
import pathlib
import sys

LIMIT_DAYS = 365


def price_dates(text):
    """provider → {date: how many price lines have it}"""
    dates, provider = {}, ""
    for line in text.splitlines():
        words = line.split()
        if line.startswith("i "):
            provider = words[1]
        elif line.startswith("p "):
            found = dates.setdefault(provider, {})
            found[words[1]] = found.get(words[1], 0) + 1
    return dates


def marks(text):
    """provider → date of its mark; lines are `provider date reason`"""
    out = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            provider, date, _reason = line.split(maxsplit=2)
            out[provider] = datetime.date.fromisoformat(date)
    return out


def complaints(offers, marked, today):
    out = []
    for provider, dates in sorted(price_dates(offers).items()):
        for date, count in sorted(dates.items()):
            age = (today - datetime.date.fromisoformat(date)).days
            if age < 0:
                out.append(f"{provider}: {count} prices are dated {date}, in the future")
            if age > LIMIT_DAYS and provider not in marked:
                out.append(
                    f"{provider}: {count} prices of {date} are {age} days old; collect them anew or"
                    " list the provider in data/stale_prices.txt with a reason"
                )
    for provider, date in sorted(marked.items()):
        if (today - date).days > LIMIT_DAYS:
            out.append(f"{provider}: its mark in data/stale_prices.txt is of {date}: look again")
        if provider not in price_dates(offers):
            out.append(f"{provider}: marked in data/stale_prices.txt, but it has no offers")
    return out


def self_test():
    offers = "i a x GPU 1\np 2025-01-01 1\ni b y GPU 1\np 2026-06-01 1\n"
    today = datetime.date(2026, 7, 1)
    assert len(complaints(offers, {}, today)) == 1
    assert complaints(offers, marks("a 2026-06-01 closed"), today) == []
    assert len(complaints(offers, marks("a 2025-01-01 closed"), today)) == 1
    assert len(complaints(offers, marks("a 2026-06-01 x\nc 2026-06-01 x"), today)) == 1
    assert len(complaints(offers, marks("a 2026-06-01 x"), datetime.date(2026, 5, 1))) == 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--today", type=datetime.date.fromisoformat, default=datetime.date.today())
    parser.add_argument("data", nargs="?", default=pathlib.Path(__file__).parents[2] / "data")
    args = parser.parse_args()
    self_test()
    data = pathlib.Path(args.data)
    found = complaints(
        (data / "offers.txt").read_text(),
        marks((data / "stale_prices.txt").read_text()),
        args.today,
    )
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
