// GPUs and their prices: the catalogue that comes with the binary (data/gpus.txt, data/offers.txt),
// overlaid by imported prices (`billow prices update`). It belongs to the ledger because both the
// bills and the advice read it.
//
// Invariants: hardware facts come from the GPU table alone, never from a price list; a price of
// zero and a spot price at or above on-demand are refused; an unknown price is absent, never zero;
// every price carries its date.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/money.h"
#include "base/result.h"

namespace billow {

struct GpuSpec {
  std::string name;    // "A100-80GB-SXM"
  bool is_gpu = true;  // false: an accelerator without CUDA or ROCm (Inferentia, Trainium, …)
  std::optional<std::int64_t> memory_mib;  // visible to a process
  std::optional<double> bandwidth_gb_s;
  // Dense tensor rates in TFLOP/s (TOP/s for int8); absent if the part has no such unit or the rate
  // is unknown.
  std::optional<double> bf16_tflops, fp16_tflops, fp8_tflops, fp4_tflops, int8_tops;
  std::optional<double> nvlink_gb_s;  // both directions; 0: none
  std::optional<double> tdp_w;
  int mig_max = 0;  // 0: cannot be partitioned by MIG
  std::string compute_capability;
  std::vector<std::string> aliases;
  std::string source;
};

// How the GPUs of one machine are connected.
enum class Fabric { single, pcie, bridge, nvlink, nvswitch, nvl72, infinity, neuronlink };
const char* fabric_name(Fabric fabric);

struct Price {
  std::optional<NanoUsd> on_demand_h, spot_h, committed_1y_h,
      committed_3y_h;  // one instance, one hour
  std::string date;    // "2026-08-22"
  std::vector<std::string> regions;
};

struct Instance {
  std::string provider, name;
  std::size_t gpu = 0;  // index into Catalogue::gpus()
  int gpus = 0;
  int vcpus = 0;
  std::int64_t memory_gib = 0;
  Fabric fabric = Fabric::pcie;
  double fabric_gb_s = 0;   // per GPU, both directions; 0 for PCIe or a single GPU
  std::string network;      // "efa", "ib", "roce", "eth"; "unknown"
  double network_gbps = 0;  // 0: unknown
  std::vector<std::string> aliases;
  std::vector<Price> prices;  // empty: price unknown
};

// One instance in one region.
struct Offer {
  const Instance* instance = nullptr;
  const GpuSpec* gpu = nullptr;
  const Price* price = nullptr;  // null: unknown
  std::string_view region;       // empty: unknown
};

struct OfferFilter {
  std::vector<std::string> providers;  // empty: all
  std::vector<std::string> regions;    // prefixes ("us-", "europe"); empty: all
  std::string gpu;                     // names or aliases, by commas; empty: all
  int gpus_min = 1, gpus_max = 1 << 20;
  bool gpus_only = true;  // leave out Inferentia and similar
  bool with_unknown_price = false;
};

enum class Purchase { on_demand, spot, committed_1y, committed_3y };
std::optional<NanoUsd> price_of(const Price& price, Purchase purchase);

class Catalogue {
 public:
  struct Texts {
    std::string_view gpus, offers;
  };
  static Result<Catalogue> parse(Texts texts);
  // The catalogue inside this binary. Each call parses it (about a millisecond); keep the result.
  static Catalogue embedded();

  Catalogue(Catalogue&&) = default;
  Catalogue& operator=(Catalogue&&) = default;

  const std::vector<GpuSpec>& gpus() const { return gpus_; }
  const std::vector<Instance>& instances() const { return instances_; }

  // A GPU by name or alias, with loose spelling: "a100-80gb", "NVIDIA A100-SXM4-80GB", "H100_SXM",
  // or by words that only its name has: "4090". An error suggests the nearest.
  Result<const GpuSpec*> gpu(std::string_view name) const;
  // Instances by exact name, by common name ("ND H100 v5") or by family ("g5", "inf2", "p5"),
  // smallest first.
  Result<std::vector<const Instance*>> instances_named(std::string_view name) const;
  std::vector<Offer> offers(const OfferFilter& filter) const;

  // Newer prices, as CSV with a header naming at least provider, instance, region, on_demand_usd_h
  // and date; further columns: spot_usd_h, committed_1y_usd_h, committed_3y_usd_h, and gpu and gpus
  // for an instance that the catalogue does not know. Invalid lines are refused one by one and
  // reported; a file without a valid line changes nothing.
  static constexpr std::size_t report_lines_max = 100;  // of each list
  struct UpdateReport {
    int accepted = 0;
    // "line 7: spot 3.10 is not below on-demand 3.10"
    std::vector<std::string> refused;
    // "aws p5.48xlarge us-east-1: $98.32/h → $55.04/h (-44 %)"
    std::vector<std::string> changed;
  };
  Result<UpdateReport> update(std::string_view csv);

 private:
  Catalogue() = default;
  void index();
  Status parse_gpus(std::string_view text);
  Status parse_offers(std::string_view text);
  // The instance of a price line; an unknown instance needs the GPU columns.
  Result<Instance> read_instance(std::string provider,
                                 std::string name,
                                 std::string_view gpu_name,
                                 std::string_view gpu_count) const;
  void put_price(Instance instance, Price price, UpdateReport& report);

  std::vector<GpuSpec> gpus_;
  std::vector<Instance> instances_;
  std::unordered_map<std::string, std::size_t> gpu_by_alias_;     // normalised spelling
  std::unordered_map<std::string, std::size_t> instance_by_key_;  // "provider name"
};

// Days between a price's date and now; empty if the date cannot be parsed.
std::optional<std::int64_t> price_age_days(std::string_view date, WallTime now);

double usd(NanoUsd amount);

}  // namespace billow
