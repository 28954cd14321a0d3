// The routes of reports: what was spent by whom, what was wasted, invoices, the provider's bill, days that stand out. Sums come
// from the store's daily tables and, for the day that runs, from the books in memory. A member sees the projects it belongs to,
// an admin all of them and what the fleet cost.
#include <fmt/format.h>

#include <chrono>

#include "api/call.h"
#include "api/documents.h"
#include "base/crypto.h"
#include "base/text.h"
#include "control/money.h"
#include "ledger/csv.h"
#include "ledger/focus.h"
#include "ledger/report.h"

namespace billow::api::money {
namespace {

using control::day_ns;
using ledger::CostLine;
using ledger::Dimension;

constexpr std::size_t leases_max = 200'000;   // of a report that looks at each one
constexpr std::size_t runs_max = 20'000;

struct Window {
  std::int64_t day_from = 0, day_to = 0;      // inclusive
  WallTime from() const { return {day_from * day_ns}; }
  WallTime to() const { return {(day_to + 1) * day_ns}; }
};

// "7d", "2026-11-01", "2026-11"; empty: the month that runs.
Result<std::int64_t> parse_day(std::string_view text, WallTime now) {
  if (text.size() == 7 && text[4] == '-') return parse_day(std::string(text) + "-01", now);
  if (text.size() >= 10 && text[4] == '-') {
    const WallTime at = BILLOW_TRY(ledger::parse_focus_time(text));
    return at.ns / day_ns;
  }
  const auto ago = parse_duration(text);
  if (!ago || ago->ns < 0 || ago->ns > now.ns) return fail(Code::invalid, fmt::format("\"{}\" is no day", text), "write 2026-11-01, 2026-11, or how long ago: 7d");
  return (now - *ago).ns / day_ns;
}

Result<Window> window_of(const Call& call) {
  const WallTime now = call.host.now();
  const net::Request& request = call.request();
  Window out;
  out.day_to = now.ns / day_ns;
  if (request.has_param("month")) {
    out.day_from = BILLOW_TRY(parse_day(request.param("month"), now));
    const ledger::Period month = ledger::period_of(BudgetPeriod::monthly, {out.day_from * day_ns});
    out.day_from = month.from.ns / day_ns;
    out.day_to = month.to.ns / day_ns - 1;
    return out;
  }
  out.day_from = request.has_param("since") ? BILLOW_TRY(parse_day(request.param("since"), now)) : ledger::period_of(BudgetPeriod::monthly, now).from.ns / day_ns;
  if (request.has_param("until")) out.day_to = BILLOW_TRY(parse_day(request.param("until"), now));
  if (out.day_to < out.day_from) return fail(Code::invalid, "the report ends before it begins");
  return out;
}

// Whose figures are asked for and may be seen.
struct Scope {
  ProjectId project;               // none: every one that may be seen
  UserId user;
  bool everything = false;         // an admin's look at the whole installation
  std::set<ProjectId> visible;
  bool sees(ProjectId id) const { return everything || visible.contains(id); }
};

Result<Scope> scope_of(const Call& call) {
  const auto& state = call.host.state();
  Scope out;
  for (const auto& [id, project] : state.projects) if (control::role_in(state, call.principal, id)) out.visible.insert(id);
  const net::Request& request = call.request();
  if (request.has_param("project")) {
    const Project* project = state.project_by_name(request.param("project"));
    if (!project || !out.visible.contains(project->id)) return fail(Code::not_found, fmt::format("there is no project \"{}\"", request.param("project")), "see `billow project list`");
    out.project = project->id;
  }
  if (request.has_param("user")) {
    const User* user = state.user_by_name(request.param("user"));
    if (!user) return fail(Code::not_found, fmt::format("there is no user \"{}\"", request.param("user")), "see `billow user list`");
    out.user = user->id;
  }
  out.everything = !out.project && !out.user && call.principal.role == Role::admin && call.principal.scope != TokenScope::submit;
  return out;
}

std::string name_of(const control::State& state, ProjectId id) {
  const auto found = state.projects.find(id);
  return found == state.projects.end() ? fmt::format("project {}", id.value) : found->second.name;
}
std::string name_of(const control::State& state, UserId id) {
  const auto found = state.users.find(id);
  return found == state.users.end() ? fmt::format("user {}", id.value) : found->second.name;
}

// What names stand for, copied before a worker reads the store: the state belongs to the loop.
struct Names {
  std::map<ProjectId, std::string> projects;
  std::map<UserId, std::string> users;
  explicit Names(const control::State& state) {
    for (const auto& [id, p] : state.projects) projects[id] = p.name;
    for (const auto& [id, u] : state.users) users[id] = u.name;
  }
  std::string of(ProjectId id) const { const auto f = projects.find(id); return f == projects.end() ? fmt::format("project {}", id.value) : f->second; }
  std::string of(UserId id) const { const auto f = users.find(id); return f == users.end() ? fmt::format("user {}", id.value) : f->second; }
};

// What open leases have come to since their last row: the part of the day that runs.
std::vector<CostLine> live_lines(const Host& host, const Scope& scope, const Window& window) {
  const auto& state = host.state();
  const auto& books = state.money.books;
  const WallTime midnight{state.money.days_closed * day_ns}, now = host.billed();
  std::vector<CostLine> out;
  if (now >= window.to() || midnight >= window.to()) return out;
  for (const LeaseId id : books.open_leases()) {
    const ledger::LeaseOpened& lease = *books.opened(id);
    if (!scope.sees(lease.project) || (scope.project && lease.project != scope.project) || (scope.user && lease.user != scope.user)) continue;
    const WallTime from = std::max(lease.at, midnight);
    const auto sums = books.lease_totals(id, from, now);
    CostLine line;
    line.day = now.ns / day_ns;
    line.project = name_of(state, lease.project);
    line.user = name_of(state, lease.user);
    line.job = fmt::format("{}", lease.job.value);
    line.gpu = lease.gpu_type;
    line.price_class = enum_name(lease.price_class);
    if (const auto node = state.nodes.find(lease.node); node != state.nodes.end()) line.node = node->second.offer.name;
    line.charge = sums.charge;
    line.cost = sums.active + sums.idle;
    line.idle = sums.idle;
    line.gpu_milli_ms = lease.gpu_type.empty() ? 0 : lease.milli * sums.held.ms();
    line.energy_mj = sums.energy_mj;
    out.push_back(std::move(line));
  }
  return out;
}

struct Fleet {
  std::int64_t today = 0;
  NanoUsd today_cost;               // of all nodes, since midnight
};
Fleet fleet_now(const Host& host) {
  const auto& state = host.state();
  const WallTime now = host.billed();
  Fleet out{now.ns / day_ns, {}};
  for (const auto& [id, node] : state.nodes) out.today_cost += state.money.books.fleet_between(id, {state.money.days_closed * day_ns}, now);
  return out;
}

struct Report {
  std::vector<CostLine> lines;
  NanoUsd fleet;
};

bool by(const std::vector<Dimension>& dimensions, Dimension one) { return std::find(dimensions.begin(), dimensions.end(), one) != dimensions.end(); }

Result<Report> read_report(const Queries& queries, const Scope& scope, const Window& window, const std::vector<Dimension>& dimensions, std::vector<CostLine> live, const Fleet& fleet, const Names& names) {
  Report out;
  out.lines = std::move(live);
  if (by(dimensions, Dimension::job) || by(dimensions, Dimension::node)) {
    LeaseQuery query{.project = scope.project, .job = {}, .from = window.from(), .before = window.to(), .after = {}, .limit = 10'000};
    while (true) {
      const auto page = BILLOW_TRY(queries.leases(query));
      for (const LeaseRow& row : page) {
        if (!scope.sees(row.project) || (scope.user && row.user != scope.user)) continue;
        out.lines.push_back({(row.to.ns - 1) / day_ns, names.of(row.project), names.of(row.user), fmt::format("{}", row.job.value), row.gpu_type, row.price_class,
                             row.node_name, row.charge, row.cost, row.idle, row.gpu_type.empty() ? 0 : row.milli * (row.to - row.from).ms(), row.energy_mj});
      }
      if (page.size() < query.limit) break;
      if (out.lines.size() > leases_max) return fail(Code::too_large, "these are too many leases to look at one by one", "ask for fewer days, one project, or by day");
      query.after = page.back().id;
    }
  } else {
    UsageQuery query{.day_from = window.day_from, .day_to = window.day_to, .project = scope.project, .user = scope.user, .by_day = by(dimensions, Dimension::day), .by_project = true,
                     .by_user = by(dimensions, Dimension::user), .by_gpu_type = by(dimensions, Dimension::gpu), .by_class = by(dimensions, Dimension::price_class)};
    for (const UsageRow& row : BILLOW_TRY(queries.usage(query))) {
      if (!scope.sees(row.project)) continue;
      CostLine line;
      line.day = row.day;
      line.project = names.of(row.project);
      if (query.by_user) line.user = names.of(row.user);
      line.gpu = row.gpu_type;
      line.price_class = row.price_class;
      line.charge = row.charge;
      line.cost = row.cost;
      line.idle = row.idle;
      line.gpu_milli_ms = row.gpu_type.empty() && query.by_gpu_type ? 0 : row.gpu_milli_ms;
      line.energy_mj = row.energy_mj;
      out.lines.push_back(std::move(line));
    }
  }
  for (const NodeDayRow& row : BILLOW_TRY(queries.node_days(window.day_from, window.day_to))) out.fleet += row.cost;
  if (fleet.today >= window.day_from && fleet.today <= window.day_to) out.fleet += fleet.today_cost;
  return out;
}

// Everything a report needs, read on a worker; `answer` runs back on the loop.
void with_report(CallPtr call, std::vector<Dimension> dimensions, std::function<void(const Scope&, const Window&, Report)> answer) {
  auto window = window_of(*call);
  if (!window) return call->fail(window.error());
  auto scope = scope_of(*call);
  if (!scope) return call->fail(scope.error());
  auto live = live_lines(call->host, *scope, *window);
  const Fleet fleet = fleet_now(call->host);
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), scope = *scope, window = *window, dimensions, live = std::move(live), fleet, names = Names(call->host.state())]() mutable {
        return read_report(queries, scope, window, dimensions, std::move(live), fleet, names);
      },
      [call, scope = *scope, window = *window, answer = std::move(answer)](Result<Report> report) {
        if (!report) return call->fail(report.error());
        answer(scope, window, std::move(*report));
      });
  if (!queued) call->fail(queued.error());
}

CostLine total_of(const std::vector<CostLine>& lines) {
  CostLine total;
  for (const CostLine& line : lines) {
    total.charge += line.charge;
    total.cost += line.cost;
    total.idle += line.idle;
    total.gpu_milli_ms += line.gpu_milli_ms;
    total.energy_mj += line.energy_mj;
  }
  return total;
}

double grid_of(const Call& call) {
  const std::string text(call.request().param("grid"));
  return text.empty() ? 0 : std::strtod(text.c_str(), nullptr);
}

Json total_document(const CostLine& total, double grid) {
  Json out = Json::object({{"charge_nano_usd", total.charge.value}, {"charge", format_usd(total.charge)}, {"cost_nano_usd", total.cost.value}, {"cost", format_usd(total.cost)},
                           {"idle_nano_usd", total.idle.value}, {"idle", format_usd(total.idle)}, {"gpu_hours", static_cast<double>(total.gpu_milli_ms) / 3.6e9},
                           {"energy_kwh", static_cast<double>(total.energy_mj) / 3.6e9}});
  if (grid > 0) out.set("co2e_kg", ledger::energy(total.energy_mj, grid).co2e_kg);
  return out;
}

void reply_text(const CallPtr& call, const char* type, std::string body) {
  net::Response response;
  response.headers = {{"Content-Type", type}};
  response.body = std::move(body);
  call->exchange->respond(std::move(response));
}

Json days_document(const Window& window) { return Json::object({{"from", ledger::day_text(window.day_from)}, {"to", ledger::day_text(window.day_to)}}); }

}  // namespace

void cost(CallPtr call) {
  const std::string format(call->request().param("format"));
  std::string wanted(call->request().param("by"));
  if (wanted.empty()) wanted = format == "focus" ? "day,project,user,gpu,class" : "project";
  auto dimensions = ledger::parse_dimensions(wanted);
  if (!dimensions) return call->fail(dimensions.error());
  if (!format.empty() && format != "json" && format != "csv" && format != "focus") return call->fail({Code::invalid, fmt::format("there is no format \"{}\"", format), "json, csv or focus"});
  if (format == "focus" && !by(*dimensions, Dimension::day)) dimensions->insert(dimensions->begin(), Dimension::day);
  with_report(call, *dimensions, [call, dimensions = *dimensions, format](const Scope& scope, const Window& window, Report report) {
    const std::vector<CostLine> lines = ledger::group(report.lines, dimensions);
    if (format == "csv") return reply_text(call, "text/csv; charset=utf-8", ledger::cost_csv(lines, dimensions));
    if (format == "focus") return reply_text(call, "text/csv; charset=utf-8", ledger::focus_csv(lines, {.account_id = "billow", .account_name = "Billow"}));
    const CostLine total = total_of(lines);
    Json by_names = Json::array();
    for (const Dimension dimension : dimensions) by_names.push(ledger::dimension_name(dimension));
    Json out = Json::object({{"by", std::move(by_names)}, {"days", days_document(window)}, {"lines", ledger::cost_json(lines, dimensions)}, {"total", total_document(total, grid_of(*call))}});
    if (scope.everything) {
      const NanoUsd unallocated = report.fleet - total.cost;
      out.set("fleet", Json::object({{"cost_nano_usd", report.fleet.value}, {"cost", format_usd(report.fleet)}, {"active_nano_usd", (total.cost - total.idle).value},
                                     {"idle_nano_usd", total.idle.value}, {"unallocated_nano_usd", unallocated.value}, {"unallocated", format_usd(unallocated)}}));
    }
    call->reply(200, out);
  });
}

void job_cost(CallPtr call) {
  auto ref = parse_job_ref(call->host, call->parts[0]);
  if (!ref) return call->fail(ref.error());
  with_job_document(call, ref->id, [call, id = ref->id](Json document) {
    // Of a live one, the leases that are open stand in the books alone.
    const auto& books = call->host.state().money.books;
    const WallTime now = call->host.billed();
    std::vector<LeaseRow> open;
    for (const LeaseId lease : books.open_leases()) {
      const ledger::LeaseOpened& o = *books.opened(lease);
      if (o.job != id) continue;
      const auto sums = books.lease_totals(lease, o.at, now);
      LeaseRow row;
      row.id = lease;
      row.job = o.job;
      row.gpu_type = o.gpu_type;
      row.milli = o.milli;
      row.price_class = enum_name(o.price_class);
      row.from = o.at;
      row.to = now;
      row.charge = sums.charge;
      row.cost = sums.active + sums.idle;
      row.idle = sums.idle;
      row.energy_mj = sums.energy_mj;
      if (const auto node = call->host.state().nodes.find(o.node); node != call->host.state().nodes.end()) row.node_name = node->second.offer.name;
      open.push_back(std::move(row));
    }
    const Status queued = call->host.workers().submit([&queries = call->host.queries(), id] { return queries.leases({.project = {}, .job = id, .from = {}, .before = {}, .after = {}, .limit = 10'000}); },
                                                      [call, document = std::move(document), open = std::move(open)](Result<std::vector<LeaseRow>> rows) mutable {
      if (!rows) return call->fail(rows.error());
      std::erase_if(*rows, [](const LeaseRow& row) { return row.open; });
      rows->insert(rows->end(), open.begin(), open.end());
      CostLine total;
      Json leases = Json::array();
      for (const LeaseRow& row : *rows) {
        const double held_s = (row.to - row.from).seconds();
        leases.push(Json::object({{"from", format_utc(row.from)}, {"to", row.open ? Json() : Json(format_utc(row.to))}, {"held_s", held_s}, {"node", row.node_name}, {"gpu", row.gpu_type},
                                  {"milli", row.milli}, {"class", row.price_class}, {"charge", format_usd(row.charge)}, {"charge_nano_usd", row.charge.value}, {"cost_nano_usd", row.cost.value},
                                  {"idle_nano_usd", row.idle.value}, {"idle_pct", row.cost.value > 0 ? 100.0 * static_cast<double>(row.idle.value) / static_cast<double>(row.cost.value) : 0.0},
                                  {"mem_peak_mib", row.mem_peak_mib}, {"sm_peak_pct", row.sm_peak_pct}, {"energy_kwh", static_cast<double>(row.energy_mj) / 3.6e9}}));
        total.charge += row.charge;
        total.cost += row.cost;
        total.idle += row.idle;
        total.energy_mj += row.energy_mj;
        total.gpu_milli_ms += row.gpu_type.empty() ? 0 : row.milli * (row.to - row.from).ms();
      }
      call->reply(200, Json::object({{"job", document["id"]}, {"name", document["name"]}, {"project", document["project"]}, {"state", document["state"]}, {"leases", std::move(leases)},
                                     {"total", total_document(total, grid_of(*call))}}));
    });
    if (!queued) call->fail(queued.error());
  });
}

void waste(CallPtr call) {
  with_report(call, {Dimension::project}, [call](const Scope& scope, const Window& window, Report report) {
    const CostLine total = total_of(report.lines);
    const Status queued = call->host.workers().submit([&queries = call->host.queries(), scope, window] { return queries.runs(scope.project, window.from(), window.to(), runs_max); },
                                                      [call, scope, window, total, fleet = report.fleet](Result<std::vector<RunRow>> runs) {
      if (!runs) return call->fail(runs.error());
      std::vector<ledger::RunPeaks> peaks;
      for (const RunRow& run : *runs) {
        if (!scope.sees(run.lease.project) || (scope.user && run.lease.user != scope.user)) continue;
        peaks.push_back({run.what, run.lease.gpus > 0 ? run.lease.milli / run.lease.gpus : 1000, run.lease.gpus, run.lease.card_mem_mib, run.lease.mem_peak_mib,
                         static_cast<double>(run.lease.engine_p95_pct), static_cast<double>(run.lease.sm_peak_pct), run.lease.measured, run.lease.charge});
      }
      const auto advice = ledger::right_size(peaks);
      // A member sees what its projects held; what nobody held is the installation's.
      const NanoUsd whole = scope.everything ? fleet : total.cost;
      const ledger::Waste sums = ledger::waste(whole, whole - total.cost, total.idle, advice);
      Json list = Json::array();
      for (const auto& a : advice) list.push(Json::object({{"what", a.what}, {"runs", a.runs}, {"gpus", static_cast<double>(a.milli) / 1000}, {"charged_nano_usd", a.charged.value}, {"would_have_been_nano_usd", a.would_have_been.value}, {"text", a.text}}));
      Json idle_now = Json::array();
      const auto& state = call->host.state();
      for (const auto& [id, idle] : state.money.idling) {
        const Task* task = state.find_task(id);
        if (!task || !scope.sees(state.jobs.at(task->job).project)) continue;
        idle_now.push(Json::object({{"job", task->job.value}, {"state", enum_name(idle.state)}, {"text", idle.text}}));
      }
      call->reply(200, Json::object({{"days", days_document(window)}, {"fleet_nano_usd", sums.fleet.value}, {"unallocated_nano_usd", sums.unallocated.value}, {"idle_nano_usd", sums.idle.value},
                                     {"inefficient_nano_usd", sums.inefficient.value}, {"text", sums.text()}, {"right_size", std::move(list)}, {"idle_now", std::move(idle_now)}}));
    });
    if (!queued) call->fail(queued.error());
  });
}

void invoice(CallPtr call) {
  if (!call->request().has_param("project")) return call->fail({Code::invalid, "an invoice is of one project", "billow invoice --project vision --month 2026-11"});
  const std::vector<Dimension> dimensions = {Dimension::user, Dimension::gpu, Dimension::price_class};
  with_report(call, dimensions, [call, dimensions](const Scope& scope, const Window& window, Report report) {
    const auto& money = call->host.state().money;
    const std::vector<CostLine> lines = ledger::group(report.lines, dimensions);
    const std::string month = ledger::day_text(window.day_from).substr(0, 7);
    Json tags = Json::object();
    if (const auto found = money.tags.find(scope.project); found != money.tags.end()) for (const auto& [key, value] : found->second) tags.set(key, value);
    call->reply(200, Json::object({{"number", fmt::format("{}-{}", name_of(call->host.state(), scope.project), month)}, {"project", name_of(call->host.state(), scope.project)}, {"month", month},
                                   {"days", days_document(window)}, {"final", money.months_closed.contains(month)}, {"tags", std::move(tags)}, {"lines", ledger::cost_json(lines, dimensions)},
                                   {"total", total_document(total_of(lines), grid_of(*call))}}));
  });
}

void anomalies(CallPtr call) {
  with_report(call, {Dimension::day}, [call](const Scope&, const Window&, Report report) {
    std::vector<std::pair<std::int64_t, NanoUsd>> days;
    for (const CostLine& line : report.lines) days.emplace_back(line.day, line.charge);
    Json list = Json::array();
    for (const auto& a : ledger::anomalies(days)) list.push(Json::object({{"day", ledger::day_text(a.day)}, {"spent_nano_usd", a.spent.value}, {"usual_nano_usd", a.usual.value}, {"text", a.text}}));
    call->reply(200, Json::object({{"anomalies", std::move(list)}}));
  });
}

// Body: the provider's file, FOCUS as CSV. Matched to nodes by name or by the label provider-id, day by day.
void import_bill(CallPtr call) {
  auto bill = ledger::parse_focus(call->request().body);
  if (!bill) return call->fail(bill.error());
  const auto& state = call->host.state();
  std::map<std::string, std::string> provider_ids;
  for (const auto& [id, node] : state.nodes)
    if (const auto label = node.offer.labels.find("provider-id"); label != node.offer.labels.end()) provider_ids[node.offer.name] = label->second;
  WallTime from{INT64_MAX}, to;
  for (const auto& line : bill->lines) from = std::min(from, line.from), to = std::max(to, line.to);
  const Window window{bill->lines.empty() ? 0 : from.ns / day_ns, to.ns / day_ns};
  // Of the day that runs, what the books have so far.
  std::vector<ledger::NodeCost> today;
  const WallTime midnight{state.money.days_closed * day_ns};
  if (midnight < to) for (const auto& [id, node] : state.nodes)
    if (const NanoUsd cost = state.money.books.fleet_between(id, midnight, call->host.billed()); cost.value != 0) {
      const auto known = provider_ids.find(node.offer.name);
      today.push_back({node.offer.name, known == provider_ids.end() ? "" : known->second, midnight, {midnight.ns + day_ns}, cost});
    }
  const std::string name(call->request().param("name"));
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), window, provider_ids, today = std::move(today), bill = std::move(*bill)]() -> Result<std::pair<ledger::Bill, std::vector<ledger::Variance>>> {
        std::vector<ledger::NodeCost> ours = today;
        for (const NodeDayRow& row : BILLOW_TRY(queries.node_days(window.day_from, window.day_to))) {
          const auto id = provider_ids.find(row.node_name);
          ours.push_back({row.node_name, id == provider_ids.end() ? "" : id->second, {row.day * day_ns}, {(row.day + 1) * day_ns}, row.cost});
        }
        auto variances = ledger::compare(bill, ours);
        return std::pair(bill, std::move(variances));
      },
      [call, name](Result<std::pair<ledger::Bill, std::vector<ledger::Variance>>> read) {
        if (!read) return call->fail(read.error());
        const auto& [bill, variances] = *read;
        BillImported record{name.empty() ? "bill" : name, sha256_hex(call->request().body).substr(0, 16), static_cast<std::int64_t>(bill.lines.size()), 0, {}, {}};
        Json list = Json::array();
        for (const auto& v : variances) {
          record.billed += v.billed;
          record.ours += v.ours;
          if (v.kind != ledger::VarianceKind::agrees) ++record.differing;
          Json lines = Json::array();
          for (const std::size_t line : v.lines) lines.push(line);
          list.push(Json::object({{"kind", enum_name(v.kind)}, {"resource", v.resource}, {"from", format_utc(v.from)}, {"to", format_utc(v.to)}, {"billed_nano_usd", v.billed.value}, {"ours_nano_usd", v.ours.value},
                                  {"difference_nano_usd", v.difference().value}, {"lines", std::move(lines)}}));
        }
        Json refused = Json::array();
        for (const std::string& line : bill.refused) refused.push(line);
        Json answer = Json::object({{"name", record.name}, {"currency", bill.currency}, {"lines", record.lines}, {"differing", record.differing}, {"billed_nano_usd", record.billed.value}, {"ours_nano_usd", record.ours.value},
                                    {"variances", std::move(list)}, {"refused", std::move(refused)}});
        call->execute(RecordBill{record}, 200, [answer = std::move(answer)](const std::vector<Event>&) { return answer; });
      });
  if (!queued) call->fail(queued.error());
}

void months(CallPtr call) {
  Json list = Json::array();
  for (const std::string& month : call->host.state().money.months_closed) list.push(month);
  call->reply_durable(200, Json::object({{"closed", std::move(list)}}));
}

void close_month(CallPtr call) {
  const auto now = call->host.now();
  auto first = parse_day(call->parts[0], now);
  if (!first || call->parts[0].size() != 7) return call->fail({Code::invalid, fmt::format("\"{}\" is no month", call->parts[0]), "write it like 2026-11"});
  const ledger::Period period = ledger::period_of(BudgetPeriod::monthly, {*first * day_ns});
  if (call->host.state().money.days_closed * day_ns < period.to.ns) return call->fail({Code::conflict, fmt::format("{} is not over yet", call->parts[0]), fmt::format("it can be closed after {}", format_utc(period.to))});
  const Status queued = call->host.workers().submit([&queries = call->host.queries(), period] {
    return queries.usage({.day_from = period.from.ns / day_ns, .day_to = period.to.ns / day_ns - 1, .project = {}, .user = {}});
  }, [call](Result<std::vector<UsageRow>> rows) {
    if (!rows) return call->fail(rows.error());
    CloseMonth command{call->parts[0], {}, {}};
    for (const UsageRow& row : *rows) command.cost += row.cost, command.charge += row.charge;
    call->execute(command, 200, [command](const std::vector<Event>&) {
      return Json::object({{"month", command.month}, {"cost_nano_usd", command.cost.value}, {"charge_nano_usd", command.charge.value}, {"charge", format_usd(command.charge)}});
    });
  });
  if (!queued) call->fail(queued.error());
}

void entries(CallPtr call) {
  EntryQuery query;
  if (call->request().has_param("after")) {
    const auto after = parse_int(call->request().param("after"), 0, INT64_MAX);
    if (!after) return call->fail(after.error());
    query.after = static_cast<std::uint64_t>(*after);
  }
  const Status queued = call->host.workers().submit([&queries = call->host.queries(), query] { return queries.entries(query); }, [call](Result<std::vector<EntryRow>> rows) {
    if (!rows) return call->fail(rows.error());
    Json list = Json::array();
    for (const EntryRow& row : *rows)
      list.push(Json::object({{"number", row.number}, {"kind", row.kind}, {"node", row.node.value}, {"lease", row.lease.value}, {"job", row.job.value}, {"project", row.project.value}, {"user", row.user.value},
                              {"from", format_utc(row.from)}, {"to", format_utc(row.to)}, {"amount_nano_usd", row.amount.value}, {"correction", row.correction}}));
    call->reply(200, Json::object({{"entries", std::move(list)}}));
  });
  if (!queued) call->fail(queued.error());
}

}  // namespace billow::api::money
