#!/usr/bin/env python3
"""Makes data/offers.txt, the catalogue of instance offers, out of collected price lists and of what
providers publish on their own pages (published.csv, with a date and a source per row).

    tools/catalogue/make_offers.py --prices DIR > data/offers.txt

Price lists are wrong about hardware often enough that hardware never comes from them: which GPU an instance carries and how
its GPUs are wired is decided here, by rules over the instance's name, and its memory by data/gpus.txt. What the lists give is
prices, and those are checked: a spot price at or above on-demand is no offer of spot capacity and is dropped, and so is zero.
Zones fold into regions (the on-demand price is the region's; the spot price is the cheapest zone's), and regions with one
price share a line. Output is deterministic: the same lists give the same bytes.
"""
import argparse
import csv
import fnmatch
import sys
from collections import OrderedDict, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_gpu_names():
    alias = {}
    for line in (ROOT / "data/gpus.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        f = line.split("|")
        for name in [f[0]] + [a for a in f[13].split(",") if a]:
            alias[name.lower()] = f[0]
    return alias


ALIAS = read_gpu_names()


def hardware(provider, instance, listed):
    """The GPU an instance really carries. Doubt goes to the smaller card, so that nothing 'fits'
    that does not."""
    name = instance.lower()
    if listed in ("A100", "A100-80GB", "A100-80GB-SXM", "A100-80G-PCIe", "A100-80G-PCIe-NVLink"):
        big = (
            "80" in listed or "80gb" in name or provider == "cudo"
        )  # cudo's A100 cards are the 80 GB PCIe ones
        pcie = "pcie" in name or "pcie" in listed.lower() or name.startswith("standard_nc")
        if big and "sxm" not in name and provider not in ("aws", "gcp", "azure", "oci", "scp"):
            pcie = True
        if provider == "lambda" and name in ("gpu_1x_a100", "gpu_2x_a100", "gpu_4x_a100"):
            pcie = True
        return f"A100-{'80' if big else '40'}GB-{'PCIe' if pcie else 'SXM'}"
    if listed.startswith("H100"):
        if (
            name.startswith("standard_nc")
            or "nvl-" in name
            or "h100-nvl" in name
            or "h100_nvl-" in name
        ):
            return "H100-NVL"
        if "pcie" in name or "pcie" in listed.lower():
            return "H100-PCIe"
        sure = (
            "sxm" in name
            or "sxm" in listed.lower()
            or provider in ("aws", "gcp", "oci", "nebius", "do", "mithril")
            or name.startswith("standard_nd")
            or "nvlink_80gb" in name
        )
        return "H100-SXM" if sure else "H100-PCIe"
    if listed == "RTX6000" and provider == "nebius":
        return "RTX-PRO-6000"
    return ALIAS.get(listed.lower(), "")


# How the GPUs of an instance are wired to each other and to other instances, from the clouds' own
# pages.
# prefix of the instance's name → (fabric inside, GB/s both directions per GPU; network, Gb/s per
# instance)
WIRING = OrderedDict(
    [
        (("aws", "p4d."), "nvswitch:600 efa:400"),
        (("aws", "p4de."), "nvswitch:600 efa:400"),
        (("aws", "p5.48"), "nvswitch:900 efa:3200"),
        (("aws", "p5.4x"), "single efa:100"),
        (("aws", "p5e."), "nvswitch:900 efa:3200"),
        (("aws", "p5en."), "nvswitch:900 efa:3200"),
        (("aws", "p6-b200"), "nvswitch:1800 efa:3200"),
        (("aws", "p6-b300"), "nvswitch:1800 efa:6400"),
        (("aws", "p6e-gb200"), "nvl72:1800 efa:1600"),
        (("aws", "p3dn"), "nvlink:300 efa:100"),
        (("aws", "inf2"), "neuronlink:192 eth:100"),
        (("aws", "inf1"), "pcie eth:100"),
        (("aws", "trn1n"), "neuronlink:768 efa:1600"),
        (("aws", "trn1"), "neuronlink:768 efa:800"),
        (("gcp", "a2-"), "nvswitch:600 eth:100"),
        (("gcp", "a3-highgpu"), "nvswitch:900 eth:800"),
        (("gcp", "a3-edgegpu"), "nvswitch:900 eth:800"),
        (("gcp", "a3-megagpu"), "nvswitch:900 eth:1600"),
        (("gcp", "a3-ultragpu"), "nvswitch:900 roce:3200"),
        (("gcp", "a4-highgpu"), "nvswitch:1800 roce:3200"),
        (("gcp", "a4x-"), "nvl72:1800 roce:1600"),
        (("gcp", "g2-"), "pcie eth:100"),
        (("gcp", "g4-"), "pcie eth:400"),
        (("azure", "Standard_ND96isr_H100"), "nvswitch:900 ib:3200"),
        (("azure", "Standard_ND96isr_H200"), "nvswitch:900 ib:3200"),
        (("azure", "Standard_ND128isr_NDR_GB200"), "nvl72:1800 ib:1600"),
        (("azure", "Standard_ND96isr_MI300X"), "infinity:896 ib:3200"),
        (("azure", "Standard_ND96asr"), "nvswitch:600 ib:1600"),
        (("azure", "Standard_ND96amsr"), "nvswitch:600 ib:1600"),
        (("azure", "Standard_ND40rs"), "nvlink:300 ib:100"),
        (("azure", "Standard_NC24ads_A100"), "single eth:20"),
        (("azure", "Standard_NC"), "pcie eth:40"),
        (("oci", "BM.GPU.H100"), "nvswitch:900 roce:3200"),
        (("oci", "BM.GPU.H200"), "nvswitch:900 roce:3200"),
        (("oci", "BM.GPU.A100"), "nvswitch:600 roce:1600"),
        (("oci", "BM.GPU4"), "nvswitch:600 roce:1600"),
        (("oci", "BM.GPU3"), "nvlink:300 eth:50"),
    ]
)
# GPU → fabric where the provider's page says nothing: baseboard parts come on their baseboard,
# cards on PCIe.
BY_GPU = {
    "A100-40GB-SXM": "nvswitch:600",
    "A100-80GB-SXM": "nvswitch:600",
    "H100-SXM": "nvswitch:900",
    "H200-SXM": "nvswitch:900",
    "B200-SXM": "nvswitch:1800",
    "B300-SXM": "nvswitch:1800",
    "MI300X": "infinity:896",
    "H100-NVL": "bridge:600",
}


def wiring(provider, instance, gpu, count):
    for (who, prefix), text in WIRING.items():
        if who == provider and instance.startswith(prefix):
            inside, network = text.split()
            return ("single" if count == 1 else inside), network
    if count == 1:
        return "single", "unknown"
    if "NVLink" in instance or "NVLINK" in instance:
        return BY_GPU.get(gpu, "bridge:600"), "unknown"
    return BY_GPU.get(gpu, "pcie"), "unknown"


# Instances that exist and that the lists do not have: known hardware, price unknown.
UNLISTED = [
    ("azure", "Standard_ND96isr_H200_v5", "H200-SXM", 8, 96, 1850),
    ("azure", "Standard_ND128isr_NDR_GB200_v6", "GB200", 4, 128, 900),
    ("azure", "Standard_ND96isr_MI300X_v5", "MI300X", 8, 96, 1850),
    ("aws", "p6e-gb200.36xlarge", "GB200", 4, 144, 960),
    ("gcp", "a4x-highgpu-4g", "GB200", 4, 140, 884),
]
NAMES = {  # what people call them
    "Standard_ND96isr_H100_v5": "nd h100 v5,ndh100v5",
    "Standard_ND96isr_H200_v5": "nd h200 v5,ndh200v5",
    "Standard_ND128isr_NDR_GB200_v6": "nd gb200 v6,ndgb200v6",
    "Standard_ND96isr_MI300X_v5": "nd mi300x v5",
    "Standard_ND96amsr_A100_v4": "ndm a100 v4",
    "Standard_ND96asr_v4": "nd a100 v4",
}


def add_published(shapes, regional, wired):
    """Lays published.csv over the collected lists: rows with a GPU are instances of their own, rows
    without one match the names of collected instances. A newer row replaces the whole price of a
    region, spot too: one date stands for both. The price may be per GPU.
    """
    with open(Path(__file__).parent / "published.csv") as f:
        for row in csv.DictReader(f):
            provider, pattern, on_demand, spot = (
                row["provider"],
                row["instance"],
                usd(row["on_demand_usd_h"]),
                usd(row["spot_usd_h"]),
            )
            if row["gpu"]:
                if row["gpu"].lower() not in ALIAS:
                    sys.exit(f"no GPU in data/gpus.txt for {row['gpu']!r}: add it there")
                shapes[provider, pattern] = (
                    ALIAS[row["gpu"].lower()],
                    *(int(row[k]) for k in ("gpus", "vcpus", "memory_gib")),
                )
                wired[provider, pattern] = tuple(row["wiring"].split())
            names = [n for p, n in shapes if p == provider and fnmatch.fnmatch(n, pattern)]
            if not names:
                sys.exit(f"published.csv: the lists have no instance {pattern} of {provider}")
            for name in names:
                known = regional[provider, name]
                each = shapes[provider, name][1] if row["per"] == "gpu" else 1
                regions = list(known) if row["regions"] == "*" else row["regions"].split()
                for region in regions:
                    old = known.get(region, (None, None, ""))
                    if on_demand and row["date"] > old[2]:
                        known[region] = (on_demand * each, spot and spot * each, row["date"])


def usd(text):
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None


def show(value):
    return "-" if value is None else f"{value:.6g}" if value < 1000 else f"{value:.2f}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prices", required=True, type=Path)
    args = parser.parse_args()
    commit = {}
    with open(args.prices / "gcp_commit_prices.csv") as f:
        for row in csv.DictReader(f):
            month, y1, y3 = (
                usd(row[k]) for k in ("month_usd", "month_1y_cud_usd", "month_3y_cud_usd")
            )
            commit[row["instance"], row["region"]] = (month, y1, y3)
    shapes, regional, dropped = {}, defaultdict(dict), defaultdict(int)
    with open(args.prices / "gpu_offers.csv") as f:
        for row in csv.DictReader(f):
            provider, instance = row["provider"], row["instance_type"]
            if instance.endswith("__SPOT"):
                dropped["listed only as spot under another name"] += 1
                continue
            gpu, count = hardware(provider, instance, row["gpu"]), int(float(row["gpu_count"]))
            if not gpu:
                sys.exit(
                    f"no GPU in data/gpus.txt for {row['gpu']!r} of {provider} {instance}: add it"
                    " there"
                )
            if count < 1:
                dropped["a fraction of a GPU"] += 1
                continue
            shapes[provider, instance] = (
                gpu,
                count,
                round(float(row["vcpus"] or 0)),
                round(float(row["memory_gib"] or 0)),
            )
            on_demand, spot = usd(row["on_demand_usd_h"]), usd(row["spot_usd_h"])
            if spot is not None and on_demand is not None and spot >= on_demand:
                dropped["spot at or above on-demand"] += 1
                spot = None
            if on_demand is None and spot is None:
                dropped["no price at all"] += 1
            old = regional[provider, instance].get(row["region"])
            if old:
                on_demand = (
                    on_demand
                    if old[0] is None
                    else old[0] if on_demand is None else min(on_demand, old[0])
                )
                spot = spot if old[1] is None else old[1] if spot is None else min(spot, old[1])
            regional[provider, instance][row["region"]] = (on_demand, spot, row["source_date"])
    wired = {}
    add_published(shapes, regional, wired)
    # Some markets list a bid's floor as the price (a cent for a GPU worth a dollar). What is below
    # a sixth of the GPU's usual
    # price on demand, or a fortieth of it on spot, is no offer.
    each = defaultdict(list)
    for key, regions in regional.items():
        gpu, count = shapes[key][:2]
        each[gpu] += [on_demand / count for on_demand, _, _ in regions.values() if on_demand]
    usual = {gpu: sorted(prices)[len(prices) // 2] for gpu, prices in each.items() if prices}
    for key, regions in regional.items():
        gpu, count = shapes[key][:2]
        for region, (on_demand, spot, date) in regions.items():
            if on_demand and on_demand / count < usual[gpu] / 6:
                dropped["on-demand below a sixth of the GPU's usual price"] += 1
                on_demand = None
            if spot and gpu in usual and spot / count < usual[gpu] / 40:
                dropped["spot below a fortieth of the GPU's usual price"] += 1
                spot = None
            regions[region] = (on_demand, spot, date)
    for provider, instance, gpu, count, vcpus, memory in UNLISTED:
        shapes.setdefault((provider, instance), (gpu, count, vcpus, memory))
    out = sys.stdout.write
    out(
        "# Instance offers, made by tools/catalogue/make_offers.py from price lists collected on"
        " the dates shown. Do not edit.\n# i provider instance gpu count vcpus memory_gib fabric"
        " network [name,name]\n#   p date on_demand_usd_h spot_usd_h committed_1y_usd_h"
        " committed_3y_usd_h region,region,…   (- is unknown)\n"
    )
    for why, n in sorted(dropped.items()):
        out(f"# dropped: {n} rows: {why}\n")
    for (provider, instance), (gpu, count, vcpus, memory) in sorted(shapes.items()):
        inside, network = wired.get((provider, instance)) or wiring(provider, instance, gpu, count)
        names = NAMES.get(instance, "").replace(" ", "_")
        out(
            f"i {provider} {instance.replace(' ', '_')} {gpu} {count} {vcpus} {memory} {inside} {network} {names}"
            .rstrip()
            + "\n"
        )
        lines = defaultdict(list)
        for region, (on_demand, spot, date) in regional[provider, instance].items():
            y1 = y3 = None
            if spot and on_demand and float(show(spot)) >= float(show(on_demand)):
                spot = None  # apart only in digits that are not kept
            if provider == "gcp" and (instance, region) in commit and on_demand:
                # The committed list has its own on-demand column; only its ratios are used, on this
                # list's on-demand price.
                month, c1, c3 = commit[instance, region]
                y1 = on_demand * c1 / month if month and c1 and c1 < month else None
                y3 = on_demand * c3 / month if month and c3 and c3 < month else None
            lines[date, show(on_demand), show(spot), show(y1), show(y3)].append(
                region.replace(" ", "_") or "any"
            )
        for key, regions in sorted(lines.items(), key=lambda kv: (kv[1], kv[0])):
            out("p " + " ".join(key) + " " + ",".join(sorted(regions)) + "\n")


main()
