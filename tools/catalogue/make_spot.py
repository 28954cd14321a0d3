#!/usr/bin/env python3
"""Makes data/spot.txt: what a year of daily spot prices says about each instance type.

    tools/catalogue/make_spot.py --prices DIR > data/spot.txt

ratio: spot over on-demand. scarce: the share of zone-days at 95 % of on-demand or more, when spot is as good as sold out.
How often machines are interrupted cannot be learnt from prices: nothing here says it.
"""
import argparse
import csv
import gzip
from collections import defaultdict
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prices", required=True, type=Path)
    series = defaultdict(list)
    with gzip.open(parser.parse_args().prices / "aws_spot_daily.csv.gz", "rt") as f:
        for row in csv.DictReader(f):
            try:
                on_demand, spot = float(row["ondemand_usd_h"]), float(row["spot_usd_h"])
            except ValueError:
                continue
            if on_demand > 0 and spot > 0:
                series[row["instance"], row["az"]].append((row["date"], min(1.0, spot / on_demand)))
    by_instance = defaultdict(lambda: [[], 0])
    first, last = "9999", "0000"
    for (instance, _), days in series.items():
        days.sort()
        first, last = min(first, days[0][0]), max(last, days[-1][0])
        entry = by_instance[instance]
        for _, ratio in days:
            entry[0].append(ratio)
            entry[1] += ratio >= 0.95
    print(
        f"# Spot prices of one cloud by day and zone, {first} to {last}, made by"
        " tools/catalogue/make_spot.py. Do not edit."
    )
    print("# instance ratio_median ratio_p90 scarce_share zone_days")
    for instance, (ratios, scarce) in sorted(by_instance.items()):
        ratios.sort()
        n = len(ratios)
        print(f"{instance} {ratios[n // 2]:.3f} {ratios[n * 9 // 10]:.3f} {scarce / n:.3f} {n}")


main()
