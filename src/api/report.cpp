#include "api/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/formats/utc.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "core/ledger/focus.h"

namespace billow::api::money {

using control::day_ns;
using ledger::CostLine;
using ledger::Dimension;

Result<std::int64_t> parse_day(std::string_view text, WallTime now) {
  if (text.size() == 7 && text[4] == '-')
    return parse_day(std::string(text) + "-01", now);
  if (text.size() >= 10 && text[4] == '-') {
    const WallTime at = BILLOW_TRY(parse_utc(text));
    return at.ns / day_ns;
  }
  const bool bare = !text.empty() && text.find_first_not_of("0123456789.") == text.npos;
  const auto ago = parse_duration(text);
  if (!ago || bare || ago->ns < 0 || ago->ns > now.ns)
    return fail(Code::invalid, fmt::format("\"{}\" is not a day", text),
                "write 2026-11-01, 2026-11, or a time span such as 7d");
  return (now - *ago).ns / day_ns;
}

std::string name_of(const control::State& state, ProjectId id) {
  const auto found = state.projects.find(id);
  return found == state.projects.end() ? fmt::format("project {}", id.value) : found->second.name;
}

bool by(const std::vector<Dimension>& dimensions, Dimension one) {
  return std::find(dimensions.begin(), dimensions.end(), one) != dimensions.end();
}

namespace {

constexpr std::size_t leases_max = 200'000;  // of a report that looks at each one

}  // namespace

Result<Window> window_of(const Call& call) {
  const WallTime now = call.host.billed();  // days end by the clock of bills
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
  out.day_from = request.has_param("since")
                     ? BILLOW_TRY(parse_day(request.param("since"), now))
                     : ledger::period_of(BudgetPeriod::monthly, now).from.ns / day_ns;
  if (request.has_param("until"))
    out.day_to = BILLOW_TRY(parse_day(request.param("until"), now));
  if (out.day_to < out.day_from)
    return fail(Code::invalid,
                request.has_param("until") ? "the report would end before it begins"
                                           : "the report would begin in the future",
                "choose an earlier --since, or a later --until");
  return out;
}

Result<Scope> scope_of(const Call& call) {
  const auto& state = call.host.state();
  Scope out;
  for (const auto& [id, project] : state.projects)
    if (call.may(Permission::money_read, id))
      out.visible.insert(id);
  const net::Request& request = call.request();
  if (request.has_param("project")) {
    const Project* project = state.project_by_name(request.param("project"));
    if (!project || !out.visible.contains(project->id))
      return fail(Code::not_found,
                  fmt::format("there is no project \"{}\"", request.param("project")),
                  "see `billow project list`");
    out.project = project->id;
  }
  if (request.has_param("user")) {
    const User* user = state.user_by_name(request.param("user"));
    if (!user)
      return fail(Code::not_found, fmt::format("there is no user \"{}\"", request.param("user")),
                  "see `billow user list`");
    out.user = user->id;
  }
  out.everything = !out.project && !out.user && call.may(Permission::money_read);
  std::vector<std::string> names;
  for (const ProjectId id : out.visible)
    names.push_back(state.projects.at(id).name);
  const bool all = out.visible.size() == state.projects.size();
  out.text = out.everything  ? "everything"
             : out.project   ? "project " + name_of(state, out.project)
             : all           ? "all projects"
             : names.empty() ? "no project, because you are a member of none"
                             : "your projects: " + join(names, ", ");
  if (out.user)
    out.text += fmt::format(", user {}", request.param("user"));
  return out;
}

namespace {

std::string user_name_of(const control::State& state, UserId id) {
  const auto found = state.users.find(id);
  return found == state.users.end() ? fmt::format("user {}", id.value) : found->second.name;
}

// What names stand for, copied before a worker reads the store: the state belongs to the loop.
struct Names {
  std::map<ProjectId, std::string> projects;
  std::map<UserId, std::string> users;
  explicit Names(const control::State& state) {
    for (const auto& [id, p] : state.projects)
      projects[id] = p.name;
    for (const auto& [id, u] : state.users)
      users[id] = u.name;
  }
  std::string of(ProjectId id) const {
    const auto f = projects.find(id);
    return f == projects.end() ? fmt::format("project {}", id.value) : f->second;
  }
  std::string of(UserId id) const {
    const auto f = users.find(id);
    return f == users.end() ? fmt::format("user {}", id.value) : f->second;
  }
};

// What open leases have come to since their last row: the part of the day that runs.
std::vector<CostLine> live_lines(const Host& host, const Scope& scope, const Window& window) {
  const auto& state = host.state();
  const auto& books = state.money.books;
  const WallTime midnight{state.money.days_closed * day_ns}, now = host.billed();
  std::vector<CostLine> out;
  if (now >= window.to() || midnight >= window.to())
    return out;
  for (const LeaseId id : books.open_leases()) {
    const ledger::LeaseOpened& lease = *books.opened(id);
    if (!scope.sees(lease.project) || (scope.project && lease.project != scope.project) ||
        (scope.user && lease.user != scope.user))
      continue;
    const WallTime from = std::max(lease.at, midnight);
    const auto sums = books.lease_totals(id, from, now);
    CostLine line;
    line.day = now.ns / day_ns;
    line.project = name_of(state, lease.project);
    line.user = user_name_of(state, lease.user);
    line.job = fmt::format("{}", lease.job.value);
    line.gpu = lease.gpu_type;
    line.price_class = enum_name(lease.price_class);
    if (const auto node = state.nodes.find(lease.node); node != state.nodes.end())
      line.node = node->second.offer.name;
    line.charge = sums.charge;
    line.cost = sums.active + sums.idle;
    line.idle = sums.idle;
    line.gpu_milli_ms = lease.gpu_type.empty() ? 0 : lease.milli * sums.held.ms();
    line.energy_mj = sums.energy_mj;
    line.egress = sums.egress;
    line.egress_bytes = sums.egress_bytes;
    if (const Job* job = state.find_job(lease.job))
      if (const auto of = job->spec->labels.find(label_endpoint); of != job->spec->labels.end())
        line.endpoint = of->second;
    out.push_back(std::move(line));
  }
  return out;
}

struct Fleet {
  std::int64_t today = 0;
  NanoUsd today_cost;  // of all nodes, since midnight
};
Fleet fleet_now(const Host& host) {
  const auto& state = host.state();
  const WallTime now = host.billed();
  Fleet out{now.ns / day_ns, {}};
  for (const auto& [id, node] : state.nodes)
    out.today_cost += state.money.books.fleet_between(id, {state.money.days_closed * day_ns}, now);
  // Machines cost from their order on, before their nodes have joined.
  for (const auto& [name, machine] : state.machines)
    out.today_cost +=
        state.money.books.fleet_between(machine.account, {state.money.days_closed * day_ns}, now);
  return out;
}

// What a line by job is called. What a reservation held and its jobs did not use belongs to no job:
// it is known by the reservation's time.
std::string job_name(const LeaseRow& row) {
  return row.job
             ? fmt::format("{}", row.job.value)
             : fmt::format("reserved {} to {}, unused", utc_minute(row.from), utc_minute(row.to));
}

// The endpoint whose replica a job was. Jobs repeat, and each is read once.
class EndpointsOfJobs {
 public:
  explicit EndpointsOfJobs(const Queries& queries) : queries_(queries) {}
  Result<std::string> of(JobId id) {
    const auto [at, fresh] = known_.try_emplace(id);
    if (fresh && id)
      if (const auto row = BILLOW_TRY(queries_.get_job(id)))
        for (const auto& [key, value] : row->labels)
          if (key == label_endpoint)
            at->second = value;
    return at->second;
  }

 private:
  const Queries& queries_;
  std::map<JobId, std::string> known_;
};

// Each lease, where sums of days do not tell enough.
Status read_leases(const Queries& queries,
                   const Scope& scope,
                   const Window& window,
                   const std::vector<Dimension>& dimensions,
                   const Names& names,
                   Report& out) {
  const bool by_endpoint = by(dimensions, Dimension::endpoint);
  EndpointsOfJobs endpoints(queries);
  LeaseQuery query{.project = scope.project,
                   .job = {},
                   .from = window.from(),
                   .before = window.to(),
                   .after = {},
                   .limit = 10'000};
  while (true) {
    const auto page = BILLOW_TRY(queries.leases(query));
    for (const LeaseRow& row : page) {
      if (!scope.sees(row.project) || (scope.user && row.user != scope.user))
        continue;
      out.lines.push_back({(row.to.ns - 1) / day_ns, names.of(row.project), names.of(row.user),
                           job_name(row), row.gpu_type, row.price_class, row.node_name, row.charge,
                           row.cost, row.idle,
                           row.gpu_type.empty() ? 0 : row.milli * (row.to - row.from).ms(),
                           row.energy_mj, row.egress, row.egress_bytes,
                           by_endpoint ? BILLOW_TRY(endpoints.of(row.job)) : std::string()});
    }
    if (page.size() < query.limit)
      break;
    if (out.lines.size() > leases_max)
      return fail(Code::too_large, "too many leases for a report that reads each one",
                  "ask for fewer days, for one project, or by day");
    query.after = page.back().id;
  }
  return {};
}

Result<Report> read_report(const Queries& queries,
                           const Scope& scope,
                           const Window& window,
                           const std::vector<Dimension>& dimensions,
                           std::vector<CostLine> live,
                           const Fleet& fleet,
                           const Names& names) {
  Report out;
  out.lines = std::move(live);
  if (by(dimensions, Dimension::job) || by(dimensions, Dimension::node) ||
      by(dimensions, Dimension::endpoint)) {
    BILLOW_TRY_VOID(read_leases(queries, scope, window, dimensions, names, out));
  } else {
    UsageQuery query{.day_from = window.day_from,
                     .day_to = window.day_to,
                     .project = scope.project,
                     .user = scope.user,
                     .by_day = by(dimensions, Dimension::day),
                     .by_project = true,
                     .by_user = by(dimensions, Dimension::user),
                     .by_gpu_type = by(dimensions, Dimension::gpu),
                     .by_class = by(dimensions, Dimension::price_class)};
    for (const UsageRow& row : BILLOW_TRY(queries.usage(query))) {
      if (!scope.sees(row.project))
        continue;
      CostLine line;
      line.day = row.day;
      line.project = names.of(row.project);
      if (query.by_user)
        line.user = names.of(row.user);
      line.gpu = row.gpu_type;
      line.price_class = row.price_class;
      line.charge = row.charge;
      line.cost = row.cost;
      line.idle = row.idle;
      line.gpu_milli_ms = row.gpu_type.empty() && query.by_gpu_type ? 0 : row.gpu_milli_ms;
      line.energy_mj = row.energy_mj;
      line.egress = row.egress;
      line.egress_bytes = row.egress_bytes;
      out.lines.push_back(std::move(line));
    }
  }
  for (const NodeDayRow& row : BILLOW_TRY(queries.node_days(window.day_from, window.day_to)))
    out.fleet += row.cost;
  if (fleet.today >= window.day_from && fleet.today <= window.day_to)
    out.fleet += fleet.today_cost;
  return out;
}

}  // namespace

void with_report(CallPtr call,
                 std::vector<Dimension> dimensions,
                 std::function<void(const Scope&, const Window&, Report)> answer) {
  if (const auto grid = grid_of(*call); !grid)
    return call->fail(grid.error());
  auto window = window_of(*call);
  if (!window)
    return call->fail(window.error());
  auto scope = scope_of(*call);
  if (!scope)
    return call->fail(scope.error());
  auto live = live_lines(call->host, *scope, *window);
  const Fleet fleet = fleet_now(call->host);
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), scope = *scope, window = *window, dimensions,
       live = std::move(live), fleet, names = Names(call->host.state())]() mutable {
        return read_report(queries, scope, window, dimensions, std::move(live), fleet, names);
      },
      [call, scope = *scope, window = *window, answer = std::move(answer)](Result<Report> report) {
        if (!report)
          return call->fail(report.error());
        answer(scope, window, std::move(*report));
      });
  if (!queued)
    call->fail(queued.error());
}

CostLine total_of(const std::vector<CostLine>& lines) {
  CostLine total;
  for (const CostLine& line : lines)
    ledger::add_amounts(total, line);
  return total;
}

Result<double> grid_of(const Call& call) {
  constexpr double grams_max = 10'000;
  if (!call.request().has_param("grid"))
    return 0.0;
  auto grams = parse_double(call.request().param("grid"), 0, grams_max);
  if (!grams)
    return fail(Code::invalid, "grid: " + grams.error().message,
                "grid is the carbon intensity in grams of CO2e per kWh, e.g. grid=380");
  return *grams;
}

Json total_document(const CostLine& total, double grid) {
  Json out = Json::object({{"charge_nano_usd", total.charge.value},
                           {"charge", format_usd(total.charge)},
                           {"cost_nano_usd", total.cost.value},
                           {"cost", format_usd(total.cost)},
                           {"idle_nano_usd", total.idle.value},
                           {"idle", format_usd(total.idle)},
                           {"gpu_hours", static_cast<double>(total.gpu_milli_ms) / 3.6e9},
                           {"energy_kwh", static_cast<double>(total.energy_mj) / 3.6e9},
                           {"egress_nano_usd", total.egress.value},
                           {"egress", format_usd(total.egress)},
                           {"egress_bytes", total.egress_bytes}});
  if (grid > 0)
    out.set("co2e_kg", ledger::energy(total.energy_mj, grid).co2e_kg);
  return out;
}

Json days_document(const Window& window) {
  return Json::object(
      {{"from", ledger::day_text(window.day_from)}, {"to", ledger::day_text(window.day_to)}});
}

}  // namespace billow::api::money
