// What was paid for and not used: what nobody held, what was held and idle, what was larger than
// needed; by job (or user, project, …) with the most dollars first; and who idles right now.
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

// `leases`: what the list is made of, where one was asked for.
void answer(CallPtr call,
            const Scope& scope,
            const Window& window,
            Report report,
            std::optional<Report> leases,
            const std::vector<Dimension>& dimensions,
            std::size_t limit) {
  const CostLine total = total_of(report.lines);
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), scope, window] {
        return queries.runs(scope.project, window.from(), window.to(), runs_max);
      },
      [call, scope, window, total, dimensions, limit, report = std::move(report),
       leases = std::move(leases)](Result<std::vector<RunRow>> runs) {
        if (!runs)
          return call->fail(runs.error());
        std::vector<ledger::RunPeaks> peaks;
        std::map<std::string, std::string> names;
        for (const RunRow& run : *runs) {
          if (!scope.sees(run.lease.project) || (scope.user && run.lease.user != scope.user))
            continue;
          const std::string job = fmt::format("{}", run.lease.job.value);
          names[job] = run.what;
          peaks.push_back({run.what, run.lease.gpus > 0 ? run.lease.milli / run.lease.gpus : 1000,
                           run.lease.gpus, run.lease.card_mem_mib, run.lease.mem_peak_mib,
                           static_cast<double>(run.lease.engine_p95_pct),
                           static_cast<double>(run.lease.sm_peak_pct), run.lease.measured,
                           run.lease.charge, job, run.lease.cost - run.lease.idle});
        }
        const auto& state = call->host.state();
        for (const auto& [id, job] : state.jobs)
          if (!job.tasks.empty())
            names[fmt::format("{}", id.value)] =
                job.spec->name.empty() ? shell_join(job.spec->argv) : job.spec->name;
        const auto advice = ledger::right_size(peaks);
        const auto oversized = ledger::oversized(peaks, advice);
        NanoUsd inefficient;
        for (const auto& [job, amount] : oversized)
          inefficient += amount;
        // A member sees what its projects held; what nobody held is the installation's.
        const NanoUsd whole = scope.everything ? report.fleet : total.cost;
        const ledger::Waste sums{whole, whole - total.cost, total.idle, inefficient};
        Json list = Json::array();
        for (const auto& a : advice)
          list.push(Json::object({{"what", a.what},
                                  {"runs", a.runs},
                                  {"gpus", static_cast<double>(a.milli) / 1000},
                                  {"charged_nano_usd", a.charged.value},
                                  {"would_have_been_nano_usd", a.would_have_been.value},
                                  {"text", a.text}}));
        Json out = Json::object({{"days", days_document(window)},
                                 {"scope", scope.text},
                                 {"fleet_nano_usd", sums.fleet.value},
                                 {"unallocated_nano_usd", sums.unallocated.value},
                                 {"idle_nano_usd", sums.idle.value},
                                 {"inefficient_nano_usd", sums.inefficient.value},
                                 {"text", sums.text()},
                                 {"right_size", std::move(list)},
                                 {"idle_now", idle_now_document(call->host, scope)}});
        if (!dimensions.empty()) {
          const auto wasted = ledger::waste_by(leases->lines, dimensions, oversized, names);
          Json names_by = Json::array(), lines = Json::array();
          for (const Dimension dimension : dimensions)
            names_by.push(ledger::dimension_name(dimension));
          for (std::size_t i = 0; i < wasted.size() && i < limit; ++i)
            lines.push(line_document(wasted[i], dimensions));
          out.set("by", std::move(names_by));
          out.set("lines", std::move(lines));
          out.set("lines_in_all", wasted.size());
          NanoUsd idle, oversized_sum;
          for (const auto& line : wasted)
            idle += line.line.idle, oversized_sum += line.oversized;
          out.set("lines_idle_nano_usd", idle.value);
          out.set("lines_oversized_nano_usd", oversized_sum.value);
        }
        call->reply(200, out);
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
  // The sums are those of the days, whatever list is asked for with them; the list takes leases one
  // by one. By lines only where they were asked for: a year of leases is not read for three sums.
  with_report(call, {Dimension::project},
              [call, dimensions, limit](const Scope& scope, const Window& window, Report sums) {
                if (dimensions.empty())
                  return answer(call, scope, window, std::move(sums), std::nullopt, dimensions,
                                limit);
                std::vector<Dimension> read = dimensions;
                if (!by(read, Dimension::job))
                  read.push_back(Dimension::job);
                with_report(call, read,
                            [call, dimensions, limit, sums = std::move(sums)](
                                const Scope& same, const Window& days, Report leases) {
                              answer(call, same, days, sums, std::move(leases), dimensions, limit);
                            });
              });
}

}  // namespace billow::api::money
