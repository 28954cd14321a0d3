// The routes of reports: costs, invoices, the provider's bill, unusual days. Waste is in waste.cpp.
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <map>
#include <tuple>

#include "api/call.h"
#include "api/report.h"
#include "base/crypto.h"
#include "base/formats/csv.h"
#include "base/limits.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "core/ledger/decimal.h"
#include "core/ledger/focus.h"

namespace billow::api::money {
namespace {

using control::day_ns;
using ledger::CostLine;
using ledger::Dimension;

void reply_text(const CallPtr& call, const char* type, std::string body) {
  net::Response response;
  response.headers = {{"Content-Type", type}};
  response.body = std::move(body);
  call->exchange->respond(std::move(response));
}

void add_sums(Json& line, const KeyUse& sum) {
  line.set("requests", sum.requests);
  line.set("refused", sum.refused);
  line.set("tokens_in", sum.tokens_in);
  line.set("tokens_out", sum.tokens_out);
  line.set("charge_nano_usd", sum.charge.value);
}

// What keys of endpoints have used, by endpoint and key (and day). Charges of keys are owed to the
// owner of the endpoint; they are not part of what projects pay for GPUs.
void key_cost(const CallPtr& call, bool by_day, bool csv) {
  const auto window = window_of(*call);
  if (!window)
    return call->fail(window.error());
  const auto scope = scope_of(*call);
  if (!scope)
    return call->fail(scope.error());
  const auto& state = call->host.state();
  std::map<std::tuple<std::int64_t, ProjectId, std::string, std::string>, KeyUse> sums;
  KeyUse total;
  for (const KeyUse& use : state.key_uses) {
    if (use.day < window->day_from || use.day > window->day_to || !scope->sees(use.project) ||
        (scope->project && use.project != scope->project))
      continue;
    for (KeyUse* sum :
         {&sums[{by_day ? use.day : 0, use.project, use.endpoint, use.key}], &total}) {
      sum->requests += use.requests;
      sum->refused += use.refused;
      sum->tokens_in += use.tokens_in;
      sum->tokens_out += use.tokens_out;
      sum->charge += use.charge;
    }
  }
  Json lines = Json::array();
  std::string text;
  std::vector<std::string> titles = {"project", "endpoint",  "key",        "requests",
                                     "refused", "tokens_in", "tokens_out", "charge_usd"};
  if (by_day)
    titles.insert(titles.begin(), "day");
  append_csv_row(text, titles);
  for (const auto& [id, sum] : sums) {
    const auto& [day, project, endpoint, key] = id;
    Json line =
        Json::object({{"project", name_of(state, project)}, {"endpoint", endpoint}, {"key", key}});
    std::vector<std::string> cells = {name_of(state, project),
                                      endpoint,
                                      key,
                                      std::to_string(sum.requests),
                                      std::to_string(sum.refused),
                                      std::to_string(sum.tokens_in),
                                      std::to_string(sum.tokens_out),
                                      ledger::decimal_usd(sum.charge)};
    if (by_day) {
      line.set("day", ledger::day_text(day));
      cells.insert(cells.begin(), ledger::day_text(day));
    }
    append_csv_row(text, cells);
    add_sums(line, sum);
    lines.push(std::move(line));
  }
  if (csv)
    return reply_text(call, "text/csv; charset=utf-8", std::move(text));
  Json by_names = Json::array();
  by_names.push("key");
  if (by_day)
    by_names.push("day");
  Json sum = Json::object({{"charge", format_usd(total.charge)}});
  add_sums(sum, total);
  call->reply_durable(200, Json::object({{"by", std::move(by_names)},
                                         {"days", days_document(*window)},
                                         {"scope", scope->text},
                                         {"lines", std::move(lines)},
                                         {"total", std::move(sum)}}));
}

}  // namespace

void cost(CallPtr call) {
  const std::string format(call->request().param("format"));
  std::string wanted(call->request().param("by"));
  if (wanted == "key" || wanted == "key,day" || wanted == "day,key") {
    if (format == "focus")
      return call->fail({Code::invalid, "FOCUS has no lines for endpoint keys", "use format=csv"});
    return key_cost(call, wanted != "key", format == "csv");
  }
  if (wanted.empty())
    wanted = format == "focus" ? "day,project,user,gpu,class" : "project";
  auto dimensions = ledger::parse_dimensions(wanted);
  if (!dimensions)
    return call->fail(dimensions.error());
  if (!format.empty() && format != "json" && format != "csv" && format != "focus")
    return call->fail(
        {Code::invalid, fmt::format("unknown format \"{}\"", format), "use json, csv or focus"});
  if (format == "focus" && !by(*dimensions, Dimension::day))
    dimensions->insert(dimensions->begin(), Dimension::day);
  with_report(
      call, *dimensions,
      [call, dimensions = *dimensions, format](const Scope& scope, const Window& window,
                                               Report report) {
        const std::vector<CostLine> lines = ledger::group(report.lines, dimensions);
        if (format == "csv")
          return reply_text(call, "text/csv; charset=utf-8", ledger::cost_csv(lines, dimensions));
        if (format == "focus")
          return reply_text(
              call, "text/csv; charset=utf-8",
              ledger::focus_csv(lines, {.account_id = "billow", .account_name = "Billow"}));
        const CostLine total = total_of(lines);
        Json by_names = Json::array();
        for (const Dimension dimension : dimensions)
          by_names.push(ledger::dimension_name(dimension));
        Json out = Json::object({{"by", std::move(by_names)},
                                 {"days", days_document(window)},
                                 {"scope", scope.text},
                                 {"lines", ledger::cost_json(lines, dimensions)},
                                 {"total", total_document(total, grid_of(*call).value_or(0))}});
        if (scope.everything) {
          const NanoUsd unallocated = report.fleet - total.cost;
          out.set("fleet", Json::object({{"cost_nano_usd", report.fleet.value},
                                         {"cost", format_usd(report.fleet)},
                                         {"active_nano_usd", (total.cost - total.idle).value},
                                         {"idle_nano_usd", total.idle.value},
                                         {"unallocated_nano_usd", unallocated.value},
                                         {"unallocated", format_usd(unallocated)}}));
        }
        call->reply(200, out);
      });
}

namespace {

// The leases that jobs hold now: only the books know what they have cost.
std::vector<LeaseRow> open_leases_of(const Host& host, const std::function<bool(JobId)>& wanted) {
  const control::State& state = host.state();
  const auto& books = state.money.books;
  const WallTime billed = host.billed();
  std::vector<LeaseRow> open;
  for (const LeaseId lease : books.open_leases()) {
    const ledger::LeaseOpened& o = *books.opened(lease);
    if (!wanted(o.job))
      continue;
    const auto sums = books.lease_totals(lease, o.at, billed);
    LeaseRow row;
    row.id = lease;
    row.job = o.job;
    row.gpu_type = o.gpu_type;
    row.milli = o.milli;
    row.price_class = enum_name(o.price_class);
    row.from = o.at;
    row.to = billed;
    row.charge = sums.charge;
    row.cost = sums.active + sums.idle;
    row.idle = sums.idle;
    row.energy_mj = sums.energy_mj;
    row.egress = sums.egress;
    row.egress_bytes = sums.egress_bytes;
    if (const auto node = state.nodes.find(o.node); node != state.nodes.end())
      row.node_name = node->second.offer.name;
    open.push_back(std::move(row));
  }
  return open;
}

Json lease_document(const LeaseRow& row) {
  const double idle_pct = row.cost.value > 0 ? 100.0 * static_cast<double>(row.idle.value) /
                                                   static_cast<double>(row.cost.value)
                                             : 0.0;
  return Json::object({{"from", format_utc(row.from)},
                       {"to", row.open ? Json() : Json(format_utc(row.to))},
                       {"held_s", (row.to - row.from).seconds()},
                       {"node", row.node_name},
                       {"gpu", row.gpu_type},
                       {"milli", row.milli},
                       {"class", row.price_class},
                       {"charge", format_usd(row.charge)},
                       {"charge_nano_usd", row.charge.value},
                       {"cost_nano_usd", row.cost.value},
                       {"idle_nano_usd", row.idle.value},
                       {"idle_pct", idle_pct},
                       {"mem_peak_mib", row.mem_peak_mib},
                       {"sm_peak_pct", row.sm_peak_pct},
                       {"energy_kwh", static_cast<double>(row.energy_mj) / 3.6e9},
                       {"egress_nano_usd", row.egress.value},
                       {"egress_bytes", row.egress_bytes}});
}

void add_to(CostLine& total, const LeaseRow& row) {
  total.charge += row.charge;
  total.cost += row.cost;
  total.idle += row.idle;
  total.energy_mj += row.energy_mj;
  total.egress += row.egress;
  total.egress_bytes += row.egress_bytes;
  total.gpu_milli_ms += row.gpu_type.empty() ? 0 : row.milli * (row.to - row.from).ms();
}

Json job_cost_document(const Json& job, const std::vector<LeaseRow>& rows, double grid) {
  CostLine total;
  Json leases = Json::array();
  for (const LeaseRow& row : rows) {
    leases.push(lease_document(row));
    add_to(total, row);
  }
  Json out = Json::object({{"job", job["id"]},
                           {"name", job["name"]},
                           {"project", job["project"]},
                           {"state", job["state"]},
                           {"leases", std::move(leases)},
                           {"total", total_document(total, grid)}});
  if (!job["roles"].is_array())
    return out;
  Json roles = Json::array();
  for (const Json& role : job["roles"].items())
    roles.push(Json::object({{"role", role["name"]},
                             {"members", role["count"]},
                             {"charge", role["cost"]},
                             {"charge_nano_usd", role["cost_nano_usd"]}}));
  out.set("roles", std::move(roles));
  return out;
}

}  // namespace

namespace {

constexpr std::size_t cost_elements_max = 100'000;

struct ElementCost {
  std::uint64_t index = 0;
  std::string state;
  std::vector<LeaseRow> leases;
};
using ElementCosts = std::map<JobId, ElementCost>;

ElementCosts live_elements(const Host& host, JobId array) {
  ElementCosts out;
  const auto& jobs = host.state().jobs;
  for (auto at = jobs.lower_bound(array); at != jobs.end(); ++at)
    if (at->second.array == array)
      out[at->first] = {at->second.array_index, std::string(enum_name(at->second.state)), {}};
    else if (at->first != array)
      break;
  return out;
}

// Adds the elements that have ended, and the leases of all that have ended.
Result<ElementCosts> with_stored(const Queries& queries, JobId array, ElementCosts elements) {
  JobFilter filter;
  filter.array = array;
  std::string cursor;
  do {
    const JobPage page =
        BILLOW_TRY(queries.list_jobs(filter, JobOrder::newest, cursor, limits::page_items_max));
    for (const JobRow& row : page.jobs)
      elements.try_emplace(row.id, ElementCost{row.array_index, row.state, {}});
    cursor = page.next;
  } while (!cursor.empty() && elements.size() < cost_elements_max);
  for (auto& [job, element] : elements) {
    element.leases = BILLOW_TRY(queries.leases(
        {.project = {}, .job = job, .from = {}, .before = {}, .after = {}, .limit = 10'000}));
    std::erase_if(element.leases, [](const LeaseRow& lease) { return lease.open; });
  }
  return elements;
}

// The sum of an array, and each element.
void array_cost(const CallPtr& call, JobId id, double grid, Json document) {
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), id, live = live_elements(call->host, id)] {
        return with_stored(queries, id, live);
      },
      [call, id, grid, document = std::move(document)](Result<ElementCosts> elements) {
        if (!elements)
          return call->fail(elements.error());
        for (LeaseRow& row :
             open_leases_of(call->host, [&](JobId job) { return elements->contains(job); }))
          elements->at(row.job).leases.push_back(std::move(row));
        CostLine total;
        Json list = Json::array();
        for (const auto& [job, element] : *elements) {
          CostLine one;
          for (const LeaseRow& row : element.leases) {
            add_to(one, row);
            add_to(total, row);
          }
          list.push(Json::object({{"job", job.value},
                                  {"label", fmt::format("{}.{}", id.value, element.index)},
                                  {"index", element.index},
                                  {"state", element.state},
                                  {"total", total_document(one, grid)}}));
        }
        call->reply(200, Json::object({{"job", document["id"]},
                                       {"name", document["name"]},
                                       {"project", document["project"]},
                                       {"state", document["state"]},
                                       {"leases", Json::array()},
                                       {"elements", std::move(list)},
                                       {"total", total_document(total, grid)}}));
      });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace

void job_cost(CallPtr call) {
  auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto grid = grid_of(*call);
  if (!grid)
    return call->fail(grid.error());
  with_job_document(call, ref->id, [call, id = ref->id, grid = *grid](Json document) {
    if (document.find("elements"))
      return array_cost(call, id, grid, std::move(document));
    const Status queued = call->host.workers().submit(
        [&queries = call->host.queries(), id] {
          return queries.leases(
              {.project = {}, .job = id, .from = {}, .before = {}, .after = {}, .limit = 10'000});
        },
        [call, grid, document = std::move(document),
         open = open_leases_of(call->host, [id](JobId job) { return job == id; })](
            Result<std::vector<LeaseRow>> rows) {
          if (!rows)
            return call->fail(rows.error());
          std::erase_if(*rows, [](const LeaseRow& row) { return row.open; });
          rows->insert(rows->end(), open.begin(), open.end());
          call->reply(200, job_cost_document(document, *rows, grid));
        });
    if (!queued)
      call->fail(queued.error());
  });
}

void invoice(CallPtr call) {
  if (!call->request().has_param("project"))
    return call->fail({Code::invalid, "an invoice needs a project",
                       "for example: billow invoice --project vision --month 2026-11"});
  const std::vector<Dimension> dimensions = {Dimension::user, Dimension::gpu,
                                             Dimension::price_class};
  with_report(
      call, dimensions,
      [call, dimensions](const Scope& scope, const Window& window, Report report) {
        const auto& money = call->host.state().money;
        const std::vector<CostLine> lines = ledger::group(report.lines, dimensions);
        const std::string month = ledger::day_text(window.day_from).substr(0, 7);
        Json tags = Json::object();
        if (const auto found = money.tags.find(scope.project); found != money.tags.end())
          for (const auto& [key, value] : found->second)
            tags.set(key, value);
        call->reply(
            200,
            Json::object({{"number",
                           fmt::format("{}-{}", name_of(call->host.state(), scope.project), month)},
                          {"project", name_of(call->host.state(), scope.project)},
                          {"month", month},
                          {"days", days_document(window)},
                          {"final", money.months_closed.contains(month)},
                          {"tags", std::move(tags)},
                          {"lines", ledger::cost_json(lines, dimensions)},
                          {"total", total_document(total_of(lines), grid_of(*call).value_or(0))}}));
      });
}

void anomalies(CallPtr call) {
  with_report(call, {Dimension::day}, [call](const Scope&, const Window&, Report report) {
    std::vector<std::pair<std::int64_t, NanoUsd>> days;
    for (const CostLine& line : report.lines)
      days.emplace_back(line.day, line.charge);
    Json list = Json::array();
    for (const auto& a : ledger::anomalies(days))
      list.push(Json::object({{"day", ledger::day_text(a.day)},
                              {"spent_nano_usd", a.spent.value},
                              {"usual_nano_usd", a.usual.value},
                              {"text", a.text}}));
    call->reply(200, Json::object({{"anomalies", std::move(list)}}));
  });
}

namespace {

struct Compared {
  ledger::Bill bill;
  std::vector<ledger::Variance> variances;
};

// What the nodes have cost on the day that is not closed yet, by the books.
std::vector<ledger::NodeCost> costs_today(const Host& host, WallTime before) {
  const control::State& state = host.state();
  std::vector<ledger::NodeCost> today;
  const WallTime midnight{state.money.days_closed * day_ns};
  if (midnight >= before)
    return today;
  for (const auto& [id, node] : state.nodes)
    if (const NanoUsd cost = state.money.books.fleet_between(id, midnight, host.billed());
        cost.value != 0)
      today.push_back({node.offer.name,
                       control::provider_id(state, node),
                       midnight,
                       {midnight.ns + day_ns},
                       cost});
  for (const auto& [name, machine] : state.machines)
    if (const NanoUsd cost =
            state.money.books.fleet_between(machine.account, midnight, host.billed());
        cost.value != 0)
      today.push_back({name, machine.external, midnight, {midnight.ns + day_ns}, cost});
  return today;
}

Json variance_document(const ledger::Variance& v) {
  Json lines = Json::array();
  for (const std::size_t line : v.lines)
    lines.push(line);
  return Json::object({{"kind", enum_name(v.kind)},
                       {"resource", v.resource},
                       {"from", format_utc(v.from)},
                       {"to", format_utc(v.to)},
                       {"billed_nano_usd", v.billed.value},
                       {"ours_nano_usd", v.ours.value},
                       {"difference_nano_usd", v.difference().value},
                       {"lines", std::move(lines)}});
}

// Records the comparison and answers with it.
void answer_bill(const CallPtr& call, const std::string& name, const Compared& read) {
  BillImported record{name.empty() ? "bill" : name,
                      sha256_hex(call->request().body).substr(0, 16),
                      static_cast<std::int64_t>(read.bill.lines.size()),
                      0,
                      {},
                      {}};
  Json list = Json::array();
  for (const auto& v : read.variances) {
    record.billed += v.billed;
    record.ours += v.ours;
    if (v.kind != ledger::VarianceKind::agrees)
      ++record.differing;
    list.push(variance_document(v));
  }
  Json refused = Json::array();
  for (const std::string& line : read.bill.refused)
    refused.push(line);
  Json answer = Json::object({{"name", record.name},
                              {"currency", read.bill.currency},
                              {"lines", record.lines},
                              {"differing", record.differing},
                              {"billed_nano_usd", record.billed.value},
                              {"ours_nano_usd", record.ours.value},
                              {"variances", std::move(list)},
                              {"refused", std::move(refused)}});
  call->execute(RecordBill{record}, 200,
                [answer = std::move(answer)](const std::vector<Event>&) { return answer; });
}

}  // namespace

// The body is the provider's file, FOCUS as CSV. Its lines are matched to nodes day by day, by the
// provider's id (the label provider-id, or the pool's machine) or by name; nodes that have left are
// kept with both.
void import_bill(CallPtr call) {
  auto bill = ledger::parse_focus(call->request().body);
  if (!bill)
    return call->fail(bill.error());
  WallTime from{INT64_MAX}, to;
  for (const auto& line : bill->lines) {
    from = std::min(from, line.from);
    to = std::max(to, line.to);
  }
  const Window window{bill->lines.empty() ? 0 : from.ns / day_ns, to.ns / day_ns};
  const std::string name(call->request().param("name"));
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), window, today = costs_today(call->host, to),
       bill = std::move(*bill)]() -> Result<Compared> {
        std::vector<ledger::NodeCost> ours = today;
        for (const NodeDayRow& row : BILLOW_TRY(queries.node_days(window.day_from, window.day_to)))
          ours.push_back({row.node_name,
                          row.provider_id,
                          {row.day * day_ns},
                          {(row.day + 1) * day_ns},
                          row.cost});
        return Compared{bill, ledger::compare(bill, ours)};
      },
      [call, name](Result<Compared> read) {
        if (!read)
          return call->fail(read.error());
        answer_bill(call, name, *read);
      });
  if (!queued)
    call->fail(queued.error());
}

void months(CallPtr call) {
  Json list = Json::array();
  for (const std::string& month : call->host.state().money.months_closed)
    list.push(month);
  call->reply_durable(200, Json::object({{"closed", std::move(list)}}));
}

void close_month(CallPtr call) {
  const auto now = call->host.billed();
  auto first = parse_day(call->parts[0], now);
  if (!first || call->parts[0].size() != 7)
    return call->fail({Code::invalid, fmt::format("\"{}\" is not a month", call->parts[0]),
                       "write it like 2026-11"});
  const ledger::Period period = ledger::period_of(BudgetPeriod::monthly, {*first * day_ns});
  if (call->host.state().money.days_closed * day_ns < period.to.ns)
    return call->fail({Code::conflict, fmt::format("{} has not ended yet", call->parts[0]),
                       now < period.to
                           ? fmt::format("it ends {}", relative_time(period.to, now, Zone::utc))
                           : "its last day is being closed: try again in a minute"});
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), period] {
        return queries.usage({.day_from = period.from.ns / day_ns,
                              .day_to = period.to.ns / day_ns - 1,
                              .project = {},
                              .user = {}});
      },
      [call](Result<std::vector<UsageRow>> rows) {
        if (!rows)
          return call->fail(rows.error());
        CloseMonth command{call->parts[0], {}, {}};
        for (const UsageRow& row : *rows) {
          command.cost += row.cost;
          command.charge += row.charge;
        }
        call->execute(command, 200, [command](const std::vector<Event>&) {
          return Json::object({{"month", command.month},
                               {"cost_nano_usd", command.cost.value},
                               {"charge_nano_usd", command.charge.value},
                               {"charge", format_usd(command.charge)}});
        });
      });
  if (!queued)
    call->fail(queued.error());
}

void entries(CallPtr call) {
  EntryQuery query;
  if (call->request().has_param("after")) {
    const auto after = parse_int(call->request().param("after"), 0, INT64_MAX);
    if (!after)
      return call->fail(after.error());
    query.after = static_cast<std::uint64_t>(*after);
  }
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), query] { return queries.entries(query); },
      [call](Result<std::vector<EntryRow>> rows) {
        if (!rows)
          return call->fail(rows.error());
        Json list = Json::array();
        for (const EntryRow& row : *rows)
          list.push(Json::object({{"number", row.number},
                                  {"kind", row.kind},
                                  {"node", row.node.value},
                                  {"lease", row.lease.value},
                                  {"job", row.job.value},
                                  {"project", row.project.value},
                                  {"user", row.user.value},
                                  {"from", format_utc(row.from)},
                                  {"to", format_utc(row.to)},
                                  {"amount_nano_usd", row.amount.value},
                                  {"correction", row.correction}}));
        call->reply(200, Json::object({{"entries", std::move(list)}}));
      });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace billow::api::money
