#include "core/ledger/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/enums.h"
#include "base/formats/csv.h"
#include "base/text.h"
#include "core/ledger/decimal.h"
#include "core/ledger/meter.h"

namespace billow {
BILLOW_ENUM_NAMES(ledger::Dimension,
                  {ledger::Dimension::day, "day"},
                  {ledger::Dimension::project, "project"},
                  {ledger::Dimension::user, "user"},
                  {ledger::Dimension::job, "job"},
                  {ledger::Dimension::gpu, "gpu"},
                  {ledger::Dimension::price_class, "class"},
                  {ledger::Dimension::node, "node"},
                  {ledger::Dimension::endpoint, "endpoint"});
}

namespace billow::ledger {

namespace {

constexpr std::int64_t day_ns = 86'400ll * 1'000'000'000;

std::string cell(const CostLine& line, Dimension dimension) {
  switch (dimension) {
    case Dimension::day:
      return day_text(line.day);
    case Dimension::project:
      return line.project;
    case Dimension::user:
      return line.user;
    case Dimension::job:
      return line.job;
    case Dimension::gpu:
      return line.gpu;
    case Dimension::price_class:
      return line.price_class;
    case Dimension::node:
      return line.node;
    case Dimension::endpoint:
      return line.endpoint;
  }
  return {};
}

void keep_dimension(CostLine& to, const CostLine& from, Dimension dimension) {
  switch (dimension) {
    case Dimension::day:
      to.day = from.day;
      break;
    case Dimension::project:
      to.project = from.project;
      break;
    case Dimension::user:
      to.user = from.user;
      break;
    case Dimension::job:
      to.job = from.job;
      break;
    case Dimension::gpu:
      to.gpu = from.gpu;
      break;
    case Dimension::price_class:
      to.price_class = from.price_class;
      break;
    case Dimension::node:
      to.node = from.node;
      break;
    case Dimension::endpoint:
      to.endpoint = from.endpoint;
      break;
  }
}

double gpu_hours(std::int64_t gpu_milli_ms) {
  return static_cast<double>(gpu_milli_ms) / 3.6e9;
}

// "$41", "$163", "$0.42": whole dollars from ten up.
std::string spoken(NanoUsd amount) {
  return amount.value >= 10'000'000'000
             ? fmt::format("${}", (amount.value + 500'000'000) / 1'000'000'000)
             : format_usd(amount);
}

}  // namespace

const char* dimension_name(Dimension dimension) {
  return enum_name(dimension);
}

std::string day_text(std::int64_t day) {
  return day == 0 ? "1970-01-01" : format_utc(WallTime{day * day_ns}).substr(0, 10);
}

Result<std::vector<Dimension>> parse_dimensions(std::string_view text) {
  std::vector<Dimension> out;
  for (const std::string& name : split(text, ',')) {
    const auto dimension = enum_value<Dimension>(trim(name));
    if (!dimension)
      return fail(Code::invalid, fmt::format("cannot report by \"{}\"", name),
                  "use day, project, user, job, gpu, class, node or endpoint");
    if (std::find(out.begin(), out.end(), *dimension) == out.end())
      out.push_back(*dimension);
  }
  return out;
}

void add_amounts(CostLine& sum, const CostLine& line) {
  sum.charge += line.charge;
  sum.cost += line.cost;
  sum.idle += line.idle;
  sum.gpu_milli_ms += line.gpu_milli_ms;
  sum.energy_mj += line.energy_mj;
  sum.egress += line.egress;
  sum.egress_bytes += line.egress_bytes;
}

namespace {
// Cells in natural order: job 9 before job 10, words alphabetically.
bool before(const std::string& a, const std::string& b) {
  const auto is_number = [](const std::string& text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (is_number(a) && is_number(b) && a.size() != b.size())
    return a.size() < b.size();
  return a < b;
}
struct InOrder {
  bool operator()(const std::vector<std::string>& a, const std::vector<std::string>& b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), before);
  }
};
}  // namespace

std::vector<CostLine> group(const std::vector<CostLine>& lines, const std::vector<Dimension>& by) {
  std::map<std::vector<std::string>, CostLine, InOrder> sums;
  std::vector<std::string> key(by.size());
  for (const CostLine& line : lines) {
    for (std::size_t i = 0; i < by.size(); ++i)
      key[i] = cell(line, by[i]);
    CostLine& sum = sums[key];
    for (const Dimension dimension : by)
      keep_dimension(sum, line, dimension);
    add_amounts(sum, line);
  }
  std::vector<CostLine> out;
  for (auto& [k, line] : sums)
    out.push_back(std::move(line));
  // By the first dimension: days ascending, everything else by cost, highest first.
  if (by.size() == 1 && by[0] != Dimension::day)
    std::stable_sort(out.begin(), out.end(),
                     [](const CostLine& a, const CostLine& b) { return a.charge > b.charge; });
  return out;
}

std::string cost_csv(const std::vector<CostLine>& lines, const std::vector<Dimension>& by) {
  std::string out;
  std::vector<std::string> row;
  for (const Dimension dimension : by)
    row.emplace_back(enum_name(dimension));
  for (const char* name : {"charge_usd", "cost_usd", "idle_usd", "gpu_hours", "energy_kwh",
                           "egress_usd", "egress_gib"})
    row.emplace_back(name);
  append_csv_row(out, row);
  for (const CostLine& line : lines) {
    row.clear();
    for (const Dimension dimension : by)
      row.push_back(cell(line, dimension));
    row.push_back(decimal_usd(line.charge));
    row.push_back(decimal_usd(line.cost));
    row.push_back(decimal_usd(line.idle));
    row.push_back(fmt::format("{:.6f}", gpu_hours(line.gpu_milli_ms)));
    row.push_back(fmt::format("{:.6f}", static_cast<double>(line.energy_mj) / 3.6e9));
    row.push_back(decimal_usd(line.egress));
    row.push_back(fmt::format("{:.6f}", static_cast<double>(line.egress_bytes) / (1 << 30)));
    append_csv_row(out, row);
  }
  return out;
}

Json cost_json(const std::vector<CostLine>& lines, const std::vector<Dimension>& by) {
  Json out = Json::array();
  for (const CostLine& line : lines) {
    Json row = Json::object();
    for (const Dimension dimension : by)
      row.set(enum_name(dimension), cell(line, dimension));
    row.set("charge_nano_usd", line.charge.value);
    row.set("cost_nano_usd", line.cost.value);
    row.set("idle_nano_usd", line.idle.value);
    row.set("gpu_hours", gpu_hours(line.gpu_milli_ms));
    row.set("energy_kwh", static_cast<double>(line.energy_mj) / 3.6e9);
    row.set("egress_nano_usd", line.egress.value);
    row.set("egress_bytes", line.egress_bytes);
    out.push(std::move(row));
  }
  return out;
}

std::vector<RightSize> right_size(const std::vector<RunPeaks>& runs) {
  struct Sum {
    int runs = 0;
    std::int64_t mem_peak_mib = 0, milli = 0, gpus = 0, card_mem_mib = INT64_MAX;
    double p95 = 0, sm = 0;
    NanoUsd charge;
    bool judged = true;
  };
  std::map<std::string, Sum> by_name;
  for (const RunPeaks& run : runs) {
    Sum& sum = by_name[run.what];
    ++sum.runs;
    sum.judged =
        sum.judged && run.measured && run.card_mem_mib > 0 && run.gpus > 0 && run.milli > 0;
    sum.mem_peak_mib = std::max(sum.mem_peak_mib, run.mem_peak_mib);
    sum.card_mem_mib = std::min(sum.card_mem_mib, run.card_mem_mib);
    sum.p95 = std::max(sum.p95, run.engine_p95_pct);
    sum.sm = std::max(sum.sm, run.sm_peak_pct);
    sum.milli = std::max(sum.milli, run.milli);
    sum.gpus = std::max<std::int64_t>(sum.gpus, run.gpus);
    sum.charge += run.charge;
  }
  std::vector<RightSize> out;
  for (const auto& [what, sum] : by_name) {
    // A run on several cards was split on purpose; these measurements do not show that it would fit
    // on fewer.
    if (!sum.judged || sum.gpus != 1 || sum.p95 >= 40)
      continue;
    for (const std::int64_t milli : {100, 125, 200, 250, 500}) {
      if (milli * 2 > sum.milli)
        break;  // a saving below one half is not worth a change
      const bool memory_fits = sum.mem_peak_mib * 1100 <= sum.card_mem_mib * milli;
      const bool engines_fit = std::max(sum.p95, sum.sm / 2) * 10 <= static_cast<double>(milli);
      if (!memory_fits || !engines_fit)
        continue;
      const NanoUsd would{
          static_cast<std::int64_t>(static_cast<__int128>(sum.charge.value) * milli / sum.milli)};
      RightSize advice{what, sum.runs, milli, sum.charge, would, {}};
      // A card without SM counters reports only its utilisation, so its p95 is used.
      advice.text = fmt::format(
          "peak {:.1f} GB and {:.0f} % SM over {} run{}: `--gpus {}` would have cost {} instead of "
          "{}",
          static_cast<double>(sum.mem_peak_mib) / 1024, std::max(sum.sm, sum.p95), sum.runs,
          sum.runs == 1 ? "" : "s", static_cast<double>(milli) / 1000, spoken(would),
          spoken(sum.charge));
      out.push_back(std::move(advice));
      break;
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const RightSize& a, const RightSize& b) {
    return a.charged - a.would_have_been > b.charged - b.would_have_been;
  });
  return out;
}

std::map<std::string, NanoUsd> oversized(const std::vector<RunPeaks>& runs,
                                         const std::vector<RightSize>& advice) {
  std::map<std::string, std::int64_t> enough;
  for (const RightSize& one : advice)
    enough[one.what] = one.milli;
  std::map<std::string, NanoUsd> out;
  for (const RunPeaks& run : runs) {
    const auto found = enough.find(run.what);
    if (found == enough.end() || run.milli <= found->second)
      continue;
    out[run.job].value += static_cast<std::int64_t>(static_cast<__int128>(run.active.value) *
                                                    (run.milli - found->second) / run.milli);
  }
  return out;
}

std::vector<WasteLine> waste_by(const std::vector<CostLine>& lines,
                                const std::vector<Dimension>& by,
                                const std::map<std::string, NanoUsd>& oversized,
                                const std::map<std::string, std::string>& names) {
  // First by job, where both kinds are known, then by the requested dimensions.
  std::vector<Dimension> apart = by;
  if (std::find(apart.begin(), apart.end(), Dimension::job) == apart.end())
    apart.push_back(Dimension::job);
  std::map<std::string, NanoUsd> left = oversized;
  std::map<std::vector<std::string>, WasteLine, InOrder> sums;
  for (const CostLine& line : group(lines, apart)) {
    std::vector<std::string> key;
    for (const Dimension dimension : by)
      key.push_back(cell(line, dimension));
    WasteLine& sum = sums[key];
    for (const Dimension dimension : by)
      keep_dimension(sum.line, line, dimension);
    add_amounts(sum.line, line);
    if (const auto found = left.find(line.job); found != left.end()) {
      const NanoUsd part = std::min(
          found->second, line.cost - line.idle);  // a job of several days has several lines
      sum.oversized += part;
      found->second -= part;
    }
    if (!sum.line.job.empty())
      if (const auto name = names.find(line.job); name != names.end())
        sum.what = name->second;
  }
  std::vector<WasteLine> out;
  for (auto& [key, line] : sums)
    if (line.wasted().value > 0)
      out.push_back(std::move(line));
  std::stable_sort(out.begin(), out.end(),
                   [](const WasteLine& a, const WasteLine& b) { return a.wasted() > b.wasted(); });
  return out;
}

std::string Waste::text() const {
  const auto line = [this](const char* what, NanoUsd amount) {
    const double pct = fleet.value > 0 ? 100.0 * static_cast<double>(amount.value) /
                                             static_cast<double>(fleet.value)
                                       : 0;
    return fmt::format("{:<16}{:>14}  {:>5.1f} %\n", what, format_usd(amount), pct);
  };
  return line("unallocated", unallocated) + line("allocated, idle", idle) +
         line("inefficient", inefficient);
}

std::vector<Anomaly> anomalies(const std::vector<std::pair<std::int64_t, NanoUsd>>& by_day) {
  std::map<std::int64_t, std::int64_t> spent;
  for (const auto& [day, amount] : by_day)
    spent[day] += amount.value;
  std::vector<Anomaly> out;
  if (spent.empty())
    return out;
  const std::int64_t first = spent.begin()->first, last = spent.rbegin()->first;
  for (const auto& [day, amount] : spent) {
    const std::int64_t from = std::max(first, day - 28);
    if (day - from < 7 || day > last)
      continue;
    std::vector<std::int64_t> before, deviation;
    // A day without spending counts as zero.
    for (std::int64_t d = from; d < day; ++d)
      before.push_back(spent.contains(d) ? spent.at(d) : 0);
    const std::int64_t usual = median(before);
    for (const std::int64_t value : before)
      deviation.push_back(std::abs(value - usual));
    const std::int64_t spread = std::max(median(deviation), usual / 10);
    if (amount < usual * 2 || amount - usual <= spread * 4 || amount < 1'000'000'000)
      continue;
    out.push_back({day,
                   {amount},
                   {usual},
                   fmt::format("{}: {} spent, {} is usual", day_text(day), format_usd({amount}),
                               format_usd({usual}))});
  }
  return out;
}

CommitmentUse commitment_use(const Commitment& c,
                             const std::vector<std::pair<std::int64_t, std::int64_t>>& used,
                             std::int64_t today) {
  CommitmentUse out{c.name, 0, 0, {}, std::max<std::int64_t>(0, c.to_day - today)};
  const std::int64_t end = std::min(c.to_day, today);
  __int128 committed = 0, covered = 0, demand = 0;  // GPU-milliseconds × 1000
  const __int128 per_day = static_cast<__int128>(c.gpus) * 1000 * 86'400'000;
  std::map<std::int64_t, std::int64_t> by_day;
  for (const auto& [day, amount] : used)
    by_day[day] += amount;
  for (std::int64_t day = c.from_day; day < end; ++day) {
    const __int128 today_used = by_day.contains(day) ? by_day[day] : 0;
    committed += per_day;
    demand += today_used;
    covered += std::min(per_day, today_used);
  }
  if (committed > 0)
    out.utilisation_pct = 100.0 * static_cast<double>(covered) / static_cast<double>(committed);
  if (demand > 0)
    out.coverage_pct = 100.0 * static_cast<double>(covered) / static_cast<double>(demand);
  out.unused = {
      static_cast<std::int64_t>((committed - covered) * c.rate.nano_usd_per_s / 1'000'000)};
  return out;
}

}  // namespace billow::ledger
