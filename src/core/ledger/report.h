// Reports from the books: cost by any dimensions, waste in its three kinds, right-sizing from
// measured use, unusual days. The input is lines (one per day, project, … with sums), so a year of
// leases costs no more than its days.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/json.h"
#include "base/money.h"
#include "base/result.h"

namespace billow::ledger {

enum class Dimension { day, project, user, job, gpu, price_class, node, endpoint };

// Sums of one cell; a dimension that is not separated is 0 or empty.
struct CostLine {
  std::int64_t day = 0;  // since 1970-01-01 UTC
  std::string project, user, job, gpu, price_class, node;
  NanoUsd charge;  // what the project pays
  NanoUsd cost;    // what the hardware cost
  NanoUsd idle;    // the part of cost during which the job was idle
  std::int64_t gpu_milli_ms = 0;
  std::int64_t energy_mj = 0;
  NanoUsd egress = {};  // the traffic's part of charge, and of cost
  std::int64_t egress_bytes = 0;
  std::string endpoint = {};  // whose replica the job was; empty: of none
  bool operator==(const CostLine&) const = default;
};

// "project,day" → dimensions. An error lists the valid ones.
Result<std::vector<Dimension>> parse_dimensions(std::string_view text);
// Adds every amount of `line` to `sum`.
void add_amounts(CostLine& sum, const CostLine& line);
// Summed over all other dimensions, ordered by the given ones (days ascending, all else by charge,
// highest first).
std::vector<CostLine> group(const std::vector<CostLine>& lines, const std::vector<Dimension>& by);
std::string cost_csv(const std::vector<CostLine>& lines, const std::vector<Dimension>& by);
Json cost_json(const std::vector<CostLine>& lines, const std::vector<Dimension>& by);
const char* dimension_name(Dimension dimension);
std::string day_text(std::int64_t day);  // "2026-11-15"

// ---- right-sizing
// One finished run, as its agent measured it.
struct RunPeaks {
  std::string what;           // runs of one name are judged together
  std::int64_t milli = 1000;  // share of each card it held
  std::int32_t gpus = 1;
  std::int64_t card_mem_mib = 0;
  std::int64_t mem_peak_mib = 0;
  double engine_p95_pct = 0;  // p95 of max(SM, memory activity) while it ran
  double sm_peak_pct = 0;
  bool measured = true;  // false: neither GPM nor utilisation; gives no advice
  NanoUsd charge;
  std::string job = {};
  NanoUsd active = {};  // hardware cost while the run was active
};
struct RightSize {
  std::string what;
  int runs = 0;
  std::int64_t milli = 1000;  // would have been enough
  NanoUsd charged, would_have_been;
  std::string text;  // "peak 9.1 GB and 22 % SM over 14 runs: `--gpus 0.25` would have cost $41
                     // instead of $163"
};
// Only advice that saves something. A run is over-provisioned if its p95 of SM and memory activity
// is below 40 % and its memory peak fits the smaller share with a tenth to spare. The advised share
// is never below that p95, nor below half of the highest SM activity seen, because a p95 describes
// bursty runs badly. There is no advice for several GPUs. Highest saving first.
std::vector<RightSize> right_size(const std::vector<RunPeaks>& runs);
// What the smaller shares would have saved of the active cost, by job.
std::map<std::string, NanoUsd> oversized(const std::vector<RunPeaks>& runs,
                                         const std::vector<RightSize>& advice);

// ---- waste
struct Waste {
  NanoUsd fleet, unallocated, idle, inefficient;  // inefficient: what the smaller shares above
                                                  // would have saved of the active cost
  std::string text() const;                       // three lines for people
};

// One job, user, project, …: hardware cost without benefit.
struct WasteLine {
  CostLine line;      // separated by the requested dimensions; `idle` is the first part
  NanoUsd oversized;  // the second: active on a larger share than needed
  std::string what;   // of a job: its name or command
  NanoUsd wasted() const { return line.idle + oversized; }
};
// Highest waste first; lines that wasted nothing are left out. `oversized` and `names` are by job.
std::vector<WasteLine> waste_by(const std::vector<CostLine>& lines,
                                const std::vector<Dimension>& by,
                                const std::map<std::string, NanoUsd>& oversized,
                                const std::map<std::string, std::string>& names);

// ---- unusual days
struct Anomaly {
  std::int64_t day = 0;
  NanoUsd spent, usual;  // usual: the median of the four weeks before
  std::string text;
};
// A day is reported if it is at least twice the median and exceeds it by more than four times the
// usual deviation (median of the absolute deviations, at least a tenth of the median). Needs a week
// of history.
std::vector<Anomaly> anomalies(const std::vector<std::pair<std::int64_t, NanoUsd>>& by_day);

// ---- commitments
struct Commitment {
  std::string name;
  std::string gpu;
  std::int64_t gpus = 0;
  Rate rate;                              // of one GPU, paid whether used or not
  std::int64_t from_day = 0, to_day = 0;  // exclusive
};
struct CommitmentUse {
  std::string name;
  double utilisation_pct = 0;  // the used part of the commitment
  double coverage_pct = 0;     // the committed part of the use of this type
  NanoUsd unused;
  std::int64_t days_left = 0;
};
// `used` are GPU-milliseconds × 1000 by day for the commitment's type.
CommitmentUse commitment_use(const Commitment& commitment,
                             const std::vector<std::pair<std::int64_t, std::int64_t>>& used,
                             std::int64_t today);

}  // namespace billow::ledger
