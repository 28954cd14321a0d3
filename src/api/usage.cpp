// What was charged, by day, project, user, GPU type and class: the ledger's own daily sums. And what a GPU second costs right now, for
// forms that show a price before anything runs.
#include <chrono>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "api/call.h"
#include "base/text.h"
#include "ledger/meter.h"

namespace billow::api::usage {
namespace {

constexpr std::int64_t day_ns = 86'400'000'000'000;

// "2026-11-15" as days since 1970.
Result<std::int64_t> parse_day(std::string_view text) {
  const auto parts = split(text, '-');
  const auto wrong = [&] { return fail(Code::invalid, fmt::format("\"{}\" is no day", text), "it is like 2026-11-15"); };
  if (parts.size() != 3) return wrong();
  const auto y = parse_int(parts[0], 1970, 9999), m = parse_int(parts[1], 1, 12), d = parse_int(parts[2], 1, 31);
  if (!y || !m || !d) return wrong();
  const std::chrono::year_month_day day(std::chrono::year(static_cast<int>(*y)), std::chrono::month(static_cast<unsigned>(*m)), std::chrono::day(static_cast<unsigned>(*d)));
  if (!day.ok()) return wrong();
  return std::chrono::sys_days(day).time_since_epoch().count();
}
std::string day_text(std::int64_t day) { return format_utc({day * day_ns}).substr(0, 10); }

}  // namespace

void list(CallPtr call) {
  const auto& request = call->request();
  const auto& state = call->host.state();
  UsageQuery query;
  query.day_to = call->host.now().ns / day_ns;
  query.day_from = query.day_to - 29;
  for (const auto& [name, into] : {std::pair{"from", &query.day_from}, std::pair{"to", &query.day_to}}) {
    if (request.param(name).empty()) continue;
    const auto day = parse_day(request.param(name));
    if (!day) return call->fail(day.error());
    *into = *day;
  }
  if (const std::string_view name = request.param("project"); !name.empty()) {
    const Project* project = state.project_by_name(name);
    if (!project || !may_see(*call, project->id)) return call->fail({Code::not_found, fmt::format("there is no project \"{}\"", name), "see `billow project list`"});
    query.project = project->id;
  }
  for (const std::string& by : split(request.param("by"), ',')) {
    if (by.empty()) continue;
    if (by == "day") query.by_day = true;
    else if (by == "project") query.by_project = true;
    else if (by == "user") query.by_user = true;
    else if (by == "gpu_type") query.by_gpu_type = true;
    else if (by == "class") query.by_class = true;
    else return call->fail({Code::invalid, fmt::format("\"{}\" is nothing costs are kept by", by), "day, project, user, gpu_type or class"});
  }
  // Who may not see every project sees the sums of theirs: asked by project, then folded again.
  const bool project_shown = query.by_project;
  query.by_project = true;
  const Status queued = call->host.workers().submit([&queries = call->host.queries(), query] { return queries.usage(query); },
                                                    [call, project_shown](Result<std::vector<UsageRow>> rows) {
    if (!rows) return call->fail(rows.error());
    const auto& s = call->host.state();
    std::map<std::tuple<std::int64_t, std::uint64_t, std::uint64_t, std::string, std::string>, UsageRow> sums;
    NanoUsd total;
    for (const UsageRow& row : *rows) {
      if (!control::role_in(s, call->principal, row.project)) continue;
      UsageRow& sum = sums[{row.day, project_shown ? row.project.value : 0, row.user.value, row.gpu_type, row.price_class}];
      const NanoUsd charge = sum.charge + row.charge, cost = sum.cost + row.cost;
      const std::int64_t held = sum.gpu_milli_ms + row.gpu_milli_ms;
      sum = row;
      sum.charge = charge;
      sum.cost = cost;
      sum.gpu_milli_ms = held;
      total += row.charge;
    }
    Json list = Json::array();
    for (const auto& [key, row] : sums) {
      const auto project = s.projects.find(row.project);
      const auto user = s.users.find(row.user);
      list.push(Json::object({{"day", row.day ? day_text(row.day) : std::string()}, {"project", project_shown && project != s.projects.end() ? project->second.name : std::string()},
                              {"user", user == s.users.end() ? std::string() : user->second.name}, {"gpu_type", row.gpu_type}, {"price_class", row.price_class},
                              {"charge_nano_usd", row.charge.value}, {"charge", format_usd(row.charge)}, {"gpu_hours", static_cast<double>(row.gpu_milli_ms) / 3.6e9}}));
    }
    call->reply(200, Json::object({{"rows", std::move(list)}, {"total_nano_usd", total.value}, {"total", format_usd(total)}}));
  });
  if (!queued) call->fail(queued.error());
}

// Of the GPU types there are.
void rates(CallPtr call) {
  static const ledger::PriceBook book = ledger::PriceBook::market();
  std::set<std::string> types;
  for (const auto& [id, node] : call->host.state().nodes) for (const NodeGpu& gpu : node.offer.gpus) types.insert(gpu.type);
  Json list = Json::array();
  for (const std::string& type : types)
    for (const PriceClass price_class : {PriceClass::on_demand, PriceClass::spot, PriceClass::reserved})
      list.push(Json::object({{"gpu_type", type}, {"class", enum_name(price_class)}, {"nano_usd_per_s", book.rate(type, price_class).nano_usd_per_s}}));
  call->reply(200, Json::object({{"rates", std::move(list)}}));
}

}  // namespace billow::api::usage
