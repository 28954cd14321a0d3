// Endpoints, and money: budgets and what projects were charged this month.
#include <algorithm>

#include <fmt/format.h>

#include "base/formats/utc.h"
#include "base/relative_time.h"
#include "client/endpoints/endpoints.h"
#include "client/top/charts.h"
#include "client/top/list.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

enum EndpointColumn {
  end_name,
  end_status,
  end_project,
  end_revision,
  end_ready,
  end_asleep,
  end_max,
  end_requests,
  end_rate,
  end_past,
  end_p50,
  end_p99,
  end_failed,
  end_cost,
  end_url
};

std::string waiting_time(const Json& us) {
  const auto n = us.int_or(0);
  return n == 0          ? "-"
         : n < 1'000'000 ? fmt::format("{:.0f}ms", static_cast<double>(n) / 1000)
                         : fmt::format("{:.2f}s", static_cast<double>(n) / 1e6);
}

CellText endpoint_cell(const State& state, const EndpointEntry& entry, int column, int width) {
  const Json& e = entry.document;
  const Json& f = e["figures"];
  const std::string_view status = e["status"].str_or("?");
  const auto rates = entry.requests.newest();
  switch (static_cast<EndpointColumn>(column)) {
    case end_name:
      return {entry.name};
    case end_status:
      return {std::string(status),
              {status == "serving"  ? Colour::green
               : status == "failed" ? Colour::red
                                    : Colour::yellow}};
    case end_project:
      return {std::string(e["project"].str_or(""))};
    case end_revision:
      return {fmt::format("{}", e["revision"].uint_or(0))};
    case end_ready:
      return {fmt::format("{}", f["ready"].uint_or(0))};
    case end_asleep:
      return {fmt::format("{}", f["sleeping"].uint_or(0))};
    case end_max:
      return {fmt::format("{}", e["max"].uint_or(0))};
    case end_requests:
      return {fmt::format("{}", f["requests"].uint_or(0))};
    case end_rate:
      return {rates.empty() ? "-" : fmt::format("{:.1f}", rates.back() / 10)};
    case end_past: {
      const Range range = range_of(rates);
      return {sparkline(rates, width, range.max > 0 ? range.max : 1, state.utf8), {Colour::green}};
    }
    case end_p50:
      return {waiting_time(f["first_byte_p50_us"])};
    case end_p99:
      return {waiting_time(f["first_byte_p99_us"])};
    case end_failed:
      return {fmt::format("{}", f["failed"].uint_or(0)),
              {f["failed"].uint_or(0) ? Colour::red : Colour::none}};
    case end_cost:
      return {usd(static_cast<std::int64_t>(e["cost_usd"].double_or(0) * 1e9))};
    case end_url:
      return {url_of(e)};
  }
  return {};
}

struct Account {
  std::string name;  // "project vision monthly"
  const Json* budget = nullptr;
  const Json* cost = nullptr;
};

std::vector<Account> accounts_of(const Fleet& fleet) {
  std::vector<Account> out;
  for (const Json& budget : fleet.budgets) {
    Account account{fmt::format("{} {} {}", budget["scope"].str_or("?"), budget["of"].str_or("?"),
                                budget["period"].str_or("?")),
                    &budget};
    if (budget["scope"].str_or("") == "project" && budget["period"].str_or("") == "monthly")
      for (const Json& line : fleet.costs)
        if (line["project"].str_or("") == budget["of"].str_or(""))
          account.cost = &line;
    out.push_back(std::move(account));
  }
  for (const Json& line : fleet.costs)
    if (std::ranges::none_of(out, [&](const Account& a) { return a.cost == &line; }))
      out.push_back({fmt::format("project {}", line["project"].str_or("?")), nullptr, &line});
  return out;
}

std::int64_t charged(const Account& a) {
  return a.budget ? (*a.budget)["spent_nano_usd"].int_or(0)
                  : (*a.cost)["charge_nano_usd"].int_or(0);
}
double used_pct(const Account& a) {
  return a.budget ? (*a.budget)["spent_pct"].double_or(0) : -1;
}

enum MoneyColumn {
  money_of,
  money_period,
  money_charged,
  money_limit,
  money_pct,
  money_bar,
  money_burn,
  money_forecast,
  money_out,
  money_idle,
  money_hours
};

// What the jobs of a project cost now. A budget of it says the same and counts for more.
std::int64_t rate_now(const Fleet& fleet, std::string_view project) {
  std::int64_t sum = 0;
  for (const auto& [id, job] : fleet.jobs)
    if (job.project == project)
      sum += job.rate_nano;
  return sum;
}

CellText money_cell(const State& state, const Account& a, int column, int width) {
  static const Json none;
  const Json& b = a.budget ? *a.budget : none;
  const Json& c = a.cost ? *a.cost : none;
  const double pct = used_pct(a);
  const Style full{pct >= 100 ? Colour::red : pct >= 80 ? Colour::yellow : Colour::green};
  switch (static_cast<MoneyColumn>(column)) {
    case money_of:
      return {a.budget ? fmt::format("{} {}", b["scope"].str_or("?"), b["of"].str_or("?"))
                       : a.name};
    case money_period:
      return {a.budget ? std::string(b["period"].str_or("?")) : "this month"};
    case money_charged:
      return {usd(charged(a))};
    case money_limit:
      return {a.budget ? usd(b["limit_nano_usd"].int_or(0)) : "-"};
    case money_pct:
      return {pct < 0 ? "-" : fmt::format("{:.0f}%", pct), pct < 80 ? Style{} : full};
    case money_bar:
      return {pct < 0 ? "" : bar(pct / 100, width, state.utf8), full};
    case money_burn:
      return {per_hour(a.budget ? b["burn_nano_usd_per_s"].int_or(0)
                                : rate_now(state.fleet, c["project"].str_or("")))};
    case money_forecast:
      return {a.budget ? usd(b["forecast_nano_usd"].int_or(0)) : "-"};
    case money_out: {
      if (b["capped"].bool_or(false))
        return {"used up", {Colour::red}};
      const WallTime out = utc_or_zero(b["runs_out_at"].str_or(""));
      const WallTime now{state.now_ms * 1'000'000};
      return {out ? "in " + rough_duration(out - now) : "-",
              {out && out - now < hours(24) ? Colour::yellow : Colour::none}};
    }
    case money_idle:
      return {a.cost ? usd(c["idle_nano_usd"].int_or(0)) : "-"};
    case money_hours:
      return {a.cost ? fmt::format("{:.1f}", c["gpu_hours"].double_or(0)) : "-"};
  }
  return {};
}

}  // namespace

List endpoint_list(const State& state) {
  List out;
  out.of = "endpoint";
  out.sorts = {"name", "requests", "cost"};
  out.columns = {{"ENDPOINT", false, 8, 0, 0, 0},
                 {"STATUS"},
                 {"PROJECT", false, 7, 8},
                 {"REV", true, 0, 6},
                 {"READY", true},
                 {"ASLEEP", true, 0, 3},
                 {"MAX", true, 0, 5},
                 {"REQUESTS", true, 0, 1, 0, 1},
                 {"/S", true, 0, 2},
                 {"LAST MINUTES", false, 12, 9, 50},
                 {"P50", true, 0, 4},
                 {"P99", true, 0, 4},
                 {"FAILED", true, 0, 5},
                 {"COST", true, 0, 6, 0, 2},
                 {"ADDRESS", false, 16, 10}};
  const ListState& list = state.list();
  auto rows = std::make_shared<std::vector<const EndpointEntry*>>();
  for (const auto& [name, entry] : state.fleet.endpoints) {
    ++out.all;
    if (matches(list,
                {name, entry.document["status"].str_or(""), entry.document["project"].str_or("")}))
      rows->push_back(&entry);
  }
  if (list.sort == 1)
    std::ranges::stable_sort(*rows, std::greater{}, &EndpointEntry::requests_seen);
  else if (list.sort == 2)
    std::ranges::stable_sort(*rows, std::greater{}, [](const EndpointEntry* e) {
      return e->document["cost_usd"].double_or(0);
    });
  if (list.reverse)
    std::ranges::reverse(*rows);
  for (const EndpointEntry* entry : *rows)
    out.rows.push_back({Subject::Kind::endpoint, entry->name});
  out.cell = [&state, rows](std::size_t row, std::size_t column, int width) {
    return endpoint_cell(state, *(*rows)[row], static_cast<int>(column), width);
  };
  out.nothing = !state.fleet.endpoints_known ? "waiting for the head …"
                : out.all                    ? "no endpoint matches the filter; Esc clears it"
                          : "there are no endpoints; `billow deploy` creates one";
  return out;
}

List money_list(const State& state) {
  List out;
  out.of = "row";
  out.sorts = {"charge", "used part", "name"};
  out.columns = {{"OF", false, 12, 0, 0, 2},    {"PERIOD", false, 0, 5},
                 {"CHARGED", true, 0, 0, 0, 0}, {"LIMIT", true},
                 {"USED", true, 0, 0, 0, 1},    {"", false, 6, 6, 20},
                 {"NOW", true, 0, 2},           {"FORECAST", true, 0, 4},
                 {"RUNS OUT", true, 0, 1},      {"IDLE", true, 0, 7},
                 {"GPU-HOURS", true, 0, 8}};
  const ListState& list = state.list();
  auto rows = std::make_shared<std::vector<Account>>();
  for (Account& account : accounts_of(state.fleet)) {
    ++out.all;
    if (matches(list, {account.name}))
      rows->push_back(std::move(account));
  }
  if (list.sort == 0)
    std::ranges::stable_sort(*rows, std::greater{}, charged);
  else if (list.sort == 1)
    std::ranges::stable_sort(*rows, std::greater{}, used_pct);
  else
    std::ranges::stable_sort(*rows, {}, &Account::name);
  if (list.reverse)
    std::ranges::reverse(*rows);
  for (const Account& account : *rows)
    out.rows.push_back({Subject::Kind::account, account.name});
  out.cell = [&state, rows](std::size_t row, std::size_t column, int width) {
    return money_cell(state, (*rows)[row], static_cast<int>(column), width);
  };
  out.nothing = !state.fleet.money_known ? "waiting for the head …"
                : out.all                ? "no row matches the filter; Esc clears it"
                                         : "nothing was charged this month";
  return out;
}

}  // namespace billow::client::top
