// GET /v1/waste: what was paid for and not used: unallocated GPUs, idle leases, and leases larger
// than needed, by job (or user, project, …) with the most dollars first; and the jobs that are idle
// now.
#include <fmt/format.h>

#include "api/report.h"
#include "base/text.h"
#include "view/idle_jobs.h"

namespace billow::api::money {
namespace {

using ledger::CostLine;
using ledger::Dimension;

constexpr std::size_t runs_max = 20'000;
constexpr std::int64_t lines_max = 1000, lines_usual = 100;

Json line_document(const ledger::WasteLine& line, const std::vector<Dimension>& dimensions) {
  Json out = ledger::cost_json({line.line}, dimensions).items().front();
  if (by(dimensions, Dimension::job))
    out.set("what", line.what);
  out.set("oversized_nano_usd", line.oversized.value);
  out.set("wasted_nano_usd", line.wasted().value);
  out.set("wasted", format_usd(line.wasted()));
  out.set("wasted_pct", line.line.cost.value > 0
                            ? 100.0 * static_cast<double>(line.wasted().value) /
                                  static_cast<double>(line.line.cost.value)
                            : 0.0);
  return out;
}

Json idle_now_document(const Host& host, const Scope& scope) {
  const auto& state = host.state();
  Json out = Json::array();
  for (const auto& [id, idle] :
       view::idle_jobs(state, [&](NodeId node) { return host.readings(node); })) {
    const Job& job = state.jobs.at(id);
    if (!scope.sees(job.project) || (scope.project && job.project != scope.project) ||
        (scope.user && job.user != scope.user))
      continue;
    const std::int64_t quiet_s = idle.quiet.ns / 1'000'000'000;
    out.push(Json::object(
        {{"job", id.value},
         {"state", enum_name(idle.state)},
         {"quiet_s", quiet_s},
         {"nano_usd_per_s", idle.nano_usd_per_s},
         {"text", idle.text.empty()
                      ? fmt::format("no work for {}", format_duration(seconds(quiet_s)))
                      : idle.text}}));
  }
  return out;
}

// Machines that were paid for and ran no job, of the days asked for. Only those who see the whole
// installation see them.
Json unused_machines(const control::State& state, const Window& window) {
  Json out = Json::array();
  for (const MachineBill& bill : state.machine_bills)
    if (!bill.used && bill.to >= window.from() && bill.from < window.to())
      out.push(Json::object({{"machine", bill.machine},
                             {"pool", bill.pool},
                             {"from", format_utc(bill.from)},
                             {"to", format_utc(bill.to)},
                             {"nano_usd", bill.amount.value},
                             {"cost", format_usd(bill.amount)},
                             {"reason", bill.reason}}));
  return out;
}

// What a report of waste is made of.
struct Asked {
  Scope scope;
  Window window;
  std::vector<Dimension> dimensions;  // of the list; empty: no list
  std::size_t limit = lines_usual;
  Report sums;
  std::optional<Report> leases;  // what the list is made of
};

std::vector<ledger::RunPeaks> peaks_of(const std::vector<RunRow>& runs, const Scope& scope) {
  std::vector<ledger::RunPeaks> peaks;
  for (const RunRow& run : runs) {
    const LeaseRow& lease = run.lease;
    if (!scope.sees(lease.project) || (scope.user && lease.user != scope.user))
      continue;
    peaks.push_back({run.what, lease.gpus > 0 ? lease.milli / lease.gpus : 1000, lease.gpus,
                     lease.card_mem_mib, lease.mem_peak_mib,
                     static_cast<double>(lease.engine_p95_pct),
                     static_cast<double>(lease.sm_peak_pct), lease.measured, lease.charge,
                     fmt::format("{}", lease.job.value), lease.cost - lease.idle});
  }
  return peaks;
}

// Names of jobs by their number, of those that have run and those that run now.
std::map<std::string, std::string> job_names(const std::vector<ledger::RunPeaks>& peaks,
                                             const control::State& state) {
  std::map<std::string, std::string> names;
  for (const ledger::RunPeaks& run : peaks)
    names[run.job] = run.what;
  for (const auto& [id, job] : state.jobs)
    if (!job.tasks.empty())
      names[fmt::format("{}", id.value)] =
          job.spec->name.empty() ? shell_join(job.spec->argv) : job.spec->name;
  return names;
}

template <class Advice>
Json advice_document(const Advice& advice) {
  Json list = Json::array();
  for (const auto& a : advice)
    list.push(Json::object({{"what", a.what},
                            {"runs", a.runs},
                            {"gpus", static_cast<double>(a.milli) / 1000},
                            {"charged_nano_usd", a.charged.value},
                            {"would_have_been_nano_usd", a.would_have_been.value},
                            {"text", a.text}}));
  return list;
}

void add_lines(Json& out, const Asked& asked, const std::vector<ledger::WasteLine>& wasted) {
  Json names = Json::array(), lines = Json::array();
  for (const Dimension dimension : asked.dimensions)
    names.push(ledger::dimension_name(dimension));
  for (std::size_t i = 0; i < wasted.size() && i < asked.limit; ++i)
    lines.push(line_document(wasted[i], asked.dimensions));
  out.set("by", std::move(names));
  out.set("lines", std::move(lines));
  out.set("lines_in_all", wasted.size());
  NanoUsd idle, oversized;
  for (const auto& line : wasted) {
    idle += line.line.idle;
    oversized += line.oversized;
  }
  out.set("lines_idle_nano_usd", idle.value);
  out.set("lines_oversized_nano_usd", oversized.value);
}

Json waste_document(const Host& host, const Asked& asked, const std::vector<RunRow>& runs) {
  const auto peaks = peaks_of(runs, asked.scope);
  const auto advice = ledger::right_size(peaks);
  const auto oversized = ledger::oversized(peaks, advice);
  NanoUsd inefficient;
  for (const auto& [job, amount] : oversized)
    inefficient += amount;
  // A member sees what its projects held; unallocated cost belongs to the installation.
  const CostLine total = total_of(asked.sums.lines);
  const NanoUsd whole = asked.scope.everything ? asked.sums.fleet : total.cost;
  const ledger::Waste sums{whole, whole - total.cost, total.idle, inefficient};
  Json out = Json::object({{"days", days_document(asked.window)},
                           {"scope", asked.scope.text},
                           {"fleet_nano_usd", sums.fleet.value},
                           {"unallocated_nano_usd", sums.unallocated.value},
                           {"idle_nano_usd", sums.idle.value},
                           {"inefficient_nano_usd", sums.inefficient.value},
                           {"text", sums.text()},
                           {"right_size", advice_document(advice)},
                           {"idle_now", idle_now_document(host, asked.scope)}});
  if (asked.scope.everything)
    out.set("unused_machines", unused_machines(host.state(), asked.window));
  if (!asked.dimensions.empty())
    add_lines(out, asked,
              ledger::waste_by(asked.leases->lines, asked.dimensions, oversized,
                               job_names(peaks, host.state())));
  return out;
}

void answer(CallPtr call, Asked asked) {
  // Before the call: it may move `asked` into the second function before it makes the first.
  auto find = [&queries = call->host.queries(), project = asked.scope.project,
               window = asked.window] {
    return queries.runs(project, window.from(), window.to(), runs_max);
  };
  const Status queued = call->host.workers().submit(
      std::move(find), [call, asked = std::move(asked)](Result<std::vector<RunRow>> runs) {
        if (!runs)
          return call->fail(runs.error());
        call->reply(200, waste_document(call->host, asked, *runs));
      });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace

void waste(CallPtr call) {
  std::vector<Dimension> dimensions;
  if (call->request().has_param("by")) {
    auto asked = ledger::parse_dimensions(call->request().param("by"));
    if (!asked)
      return call->fail(asked.error());
    dimensions = std::move(*asked);
  }
  std::size_t limit = lines_usual;
  if (call->request().has_param("limit")) {
    const auto asked = parse_int(call->request().param("limit"), 1, lines_max);
    if (!asked)
      return call->fail(Error(asked.error()).in("limit"));
    limit = static_cast<std::size_t>(*asked);
  }
  // The sums come from the daily tables. Leases are read one by one only if a list was asked for: a
  // year of leases is too much to read for three sums.
  with_report(call, {Dimension::project},
              [call, dimensions, limit](const Scope& scope, const Window& window, Report sums) {
                Asked asked{scope, window, dimensions, limit, std::move(sums), std::nullopt};
                if (dimensions.empty())
                  return answer(call, std::move(asked));
                std::vector<Dimension> read = dimensions;
                if (!by(read, Dimension::job))
                  read.push_back(Dimension::job);
                with_report(call, read,
                            [call, asked = std::move(asked)](const Scope&, const Window&,
                                                             Report leases) mutable {
                              asked.leases = std::move(leases);
                              answer(call, std::move(asked));
                            });
              });
}

}  // namespace billow::api::money
