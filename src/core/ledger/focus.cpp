#include "core/ledger/focus.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/formats/csv.h"
#include "base/text.h"
#include "core/ledger/budget.h"
#include "core/ledger/decimal.h"

namespace billow::ledger {

namespace {

constexpr std::int64_t focus_day_ns = 86'400ll * 1'000'000'000;

const std::vector<std::string>& own_columns() {
  static const std::vector<std::string> names{
      "x_Project", "x_User",         "x_Job",      "x_GpuType",   "x_PriceClass",
      "x_Node",    "x_HardwareCost", "x_IdleCost", "x_EnergyKwh", "x_EgressBytes"};
  return names;
}

// format_utc shows the zero time as "-"; a bill's columns must be dates.
std::string time_text(std::int64_t ns) {
  return ns == 0 ? "1970-01-01T00:00:00Z" : format_utc(WallTime{ns});
}

// A row covers either the time GPUs were held or the traffic sent meanwhile: two services, two
// units.
enum class FocusRow { compute, egress };

std::string focus_cell(const std::string& column,
                       const CostLine& line,
                       FocusRow kind,
                       const FocusOptions& options,
                       const Period& month) {
  const std::string hours = fmt::format("{:.6f}", static_cast<double>(line.gpu_milli_ms) / 3.6e9);
  const std::string gib = fmt::format("{:.9f}", static_cast<double>(line.egress_bytes) / (1 << 30));
  const bool egress = kind == FocusRow::egress;
  if (column == "BilledCost" || column == "EffectiveCost" || column == "ListCost" ||
      column == "ContractedCost")
    return decimal_usd(line.charge);
  if (column == "BillingAccountId")
    return options.account_id;
  if (column == "BillingAccountName")
    return options.account_name;
  if (column == "BillingCurrency")
    return "USD";
  if (column == "BillingPeriodStart")
    return time_text(month.from.ns);
  if (column == "BillingPeriodEnd")
    return time_text(month.to.ns);
  if (column == "ChargePeriodStart")
    return time_text(line.day * focus_day_ns);
  if (column == "ChargePeriodEnd")
    return time_text((line.day + 1) * focus_day_ns);
  if (column == "ChargeCategory")
    return "Usage";
  if (column == "ChargeDescription" && egress)
    return fmt::format("{} GiB sent to public addresses", gib);
  if (column == "ChargeDescription")
    return fmt::format("{} {} GPU-hours{}", hours, line.gpu.empty() ? "mixed" : line.gpu,
                       line.price_class.empty() ? "" : ", " + line.price_class);
  if (column == "PricingQuantity")
    return egress ? gib : hours;
  if (column == "PricingUnit")
    return egress ? "GiB" : "GPU-Hours";
  if (column == "InvoiceIssuerName" || column == "ProviderName" || column == "PublisherName")
    return options.issuer;
  if (column == "ServiceCategory")
    return egress ? "Networking" : "Compute";
  if (column == "ServiceName")
    return egress ? "Data transfer out" : "GPU compute";
  return {};  // ChargeClass: empty, because it corrects no earlier invoice
}

}  // namespace

const std::vector<std::string>& focus_columns() {
  static const std::vector<std::string> names{
      "BilledCost",        "BillingAccountId",   "BillingAccountName", "BillingCurrency",
      "BillingPeriodEnd",  "BillingPeriodStart", "ChargeCategory",     "ChargeClass",
      "ChargeDescription", "ChargePeriodEnd",    "ChargePeriodStart",  "ContractedCost",
      "EffectiveCost",     "InvoiceIssuerName",  "ListCost",           "PricingQuantity",
      "PricingUnit",       "ProviderName",       "PublisherName",      "ServiceCategory",
      "ServiceName"};
  return names;
}

std::string focus_csv(const std::vector<CostLine>& lines, const FocusOptions& options) {
  std::string out;
  std::vector<std::string> row = focus_columns();
  row.insert(row.end(), own_columns().begin(), own_columns().end());
  append_csv_row(out, row);
  const auto put = [&](const CostLine& line, FocusRow kind) {
    const Period month = period_of(BudgetPeriod::monthly, WallTime{line.day * focus_day_ns});
    row.clear();
    for (const std::string& column : focus_columns())
      row.push_back(focus_cell(column, line, kind, options, month));
    for (const std::string& value :
         {line.project, line.user, line.job, line.gpu, line.price_class, line.node,
          decimal_usd(line.cost), decimal_usd(line.idle),
          fmt::format("{:.6f}", static_cast<double>(line.energy_mj) / 3.6e9),
          fmt::format("{}", line.egress_bytes)})
      row.push_back(value);
    append_csv_row(out, row);
  };
  for (const CostLine& line : lines) {
    CostLine compute = line;
    compute.charge -= line.egress;
    compute.cost -= line.egress;
    compute.egress_bytes = 0;
    put(compute, FocusRow::compute);
    if (line.egress_bytes == 0 && line.egress.value == 0)
      continue;
    CostLine egress = line;
    egress.charge = line.egress;
    egress.cost = line.egress;
    egress.idle = {};
    egress.gpu_milli_ms = 0;
    egress.energy_mj = 0;
    put(egress, FocusRow::egress);
  }
  return out;
}

Result<WallTime> parse_focus_time(std::string_view text) {
  const std::string shown(text);
  const auto bad = [&] {
    return fail(Code::invalid, "not a time: \"" + shown + "\"",
                "write it like 2026-11-15T01:29:00Z");
  };
  const auto digits = [&](std::size_t at, std::size_t length) -> int {
    if (at + length > text.size())
      return -1;
    int value = 0;
    for (const char c : text.substr(at, length)) {
      if (c < '0' || c > '9')
        return -1;
      value = value * 10 + (c - '0');
    }
    return value;
  };
  if (text.ends_with(" UTC"))
    text.remove_suffix(4);
  if (text.ends_with("+00:00"))
    text.remove_suffix(6);
  if (text.ends_with("Z"))
    text.remove_suffix(1);
  if (const auto dot = text.find('.'); dot != std::string_view::npos)
    text = text.substr(0, dot);
  if (text.size() != 10 && text.size() != 16 && text.size() != 19)
    return bad();
  const int year = digits(0, 4), month = digits(5, 2), day = digits(8, 2);
  if (year < 1970 || month < 1 || day < 1 || text[4] != '-' || text[7] != '-')
    return bad();
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok())
    return bad();
  std::int64_t s = std::chrono::sys_days(date).time_since_epoch().count() * 86'400ll;
  if (text.size() >= 16) {
    const int hour = digits(11, 2), minute = digits(14, 2),
              second = text.size() == 19 ? digits(17, 2) : 0;
    if ((text[10] != 'T' && text[10] != ' ') || text[13] != ':' || hour < 0 || hour > 23 ||
        minute < 0 || minute > 59 || second < 0 || second > 60)
      return bad();
    s += hour * 3600 + minute * 60 + second;
  }
  return WallTime{} + seconds(s);
}

Result<Bill> parse_focus(std::string_view csv) {
  const CsvTable table = BILLOW_TRY(parse_csv(csv));
  for (const char* needed :
       {"BilledCost", "BillingCurrency", "ChargePeriodStart", "ChargePeriodEnd"})
    if (table.column(needed) == std::string::npos)
      return fail(Code::invalid, fmt::format("not a FOCUS file: the column {} is missing", needed),
                  "export with all mandatory columns of FOCUS 1.0 or later");
  Bill bill;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const auto& row = table.rows[i];
    const std::size_t number = table.lines[i];
    const auto get = [&](const char* name) -> std::string {
      const std::size_t column = table.column(name);
      return column == std::string::npos || row[column] == "NULL" || row[column] == "null"
                 ? std::string()
                 : row[column];
    };
    const auto refuse = [&](const std::string& why) {
      if (bill.refused.size() < 100)
        bill.refused.push_back(fmt::format("line {}: {}", number, why));
    };
    const auto billed = parse_decimal_usd(get("BilledCost"));
    const auto effective =
        parse_decimal_usd(get("EffectiveCost").empty() ? get("BilledCost") : get("EffectiveCost"));
    const auto from = parse_focus_time(get("ChargePeriodStart")),
               to = parse_focus_time(get("ChargePeriodEnd"));
    if (!billed || !effective) {
      refuse((billed ? effective : billed).error().message);
      continue;
    }
    if (!from || !to) {
      refuse((from ? to : from).error().message);
      continue;
    }
    if (*to < *from) {
      refuse("the charge period ends before it begins");
      continue;
    }
    const std::string currency = get("BillingCurrency");
    if (bill.currency.empty())
      bill.currency = currency;
    if (currency != bill.currency) {
      refuse(fmt::format("the currency is {}, the file's is {}", currency, bill.currency));
      continue;
    }
    bill.lines.push_back({number, get("ProviderName"), get("ServiceName"), get("ChargeCategory"),
                          get("ResourceId"), get("ResourceName"), *from, *to, *billed, *effective,
                          get("Tags")});
  }
  if (bill.lines.empty())
    return fail(Code::invalid, "no line of the file could be used" +
                                   (bill.refused.empty() ? "" : ": " + bill.refused.front()));
  if (bill.currency != "USD")
    return fail(Code::unsupported,
                fmt::format("the bill is in {}, but the books are in USD", bill.currency),
                "convert the file first");
  return bill;
}

std::vector<Variance> compare(const Bill& bill, const std::vector<NodeCost>& ours) {
  std::map<std::string, std::string> node_by_alias;
  for (const NodeCost& node : ours) {
    node_by_alias.emplace(node.node, node.node);
    if (!node.provider_id.empty())
      node_by_alias.insert_or_assign(node.provider_id, node.node);
  }
  // Azure and GCP give paths; the last part is the machine.
  const auto find = [&](const std::string& name) -> const std::string* {
    if (name.empty())
      return nullptr;
    if (const auto found = node_by_alias.find(name); found != node_by_alias.end())
      return &found->second;
    const auto found = node_by_alias.find(name.substr(
        name.find_last_of("/:") == std::string::npos ? 0 : name.find_last_of("/:") + 1));
    return found == node_by_alias.end() ? nullptr : &found->second;
  };
  std::map<std::pair<std::string, std::int64_t>, Variance> by_day;
  const auto at = [&](const std::string& resource, WallTime from) -> Variance& {
    const std::int64_t day = from.ns / focus_day_ns;
    Variance& v = by_day[{resource, day}];
    v.resource = resource;
    v.from = WallTime{day * focus_day_ns};
    v.to = WallTime{(day + 1) * focus_day_ns};
    return v;
  };
  std::map<std::string, bool> known;
  for (const BilledLine& line : bill.lines) {
    const std::string* node = find(line.resource_id);
    if (!node)
      node = find(line.resource_name);
    const std::string other = !line.resource_name.empty() ? line.resource_name
                              : !line.resource_id.empty()
                                  ? line.resource_id
                                  : fmt::format("{} without a resource",
                                                line.category.empty() ? "charges" : line.category);
    Variance& v = at(node ? *node : other, line.from);
    v.billed += line.billed;
    v.lines.push_back(line.line);
    if (node)
      known[*node] = true;
  }
  for (const NodeCost& node : ours)
    at(node.node, node.from).ours += node.cost;
  std::vector<Variance> out;
  for (auto& [key, v] : by_day) {
    const std::int64_t gap = std::abs(v.difference().value);
    if (v.lines.empty())
      v.kind = VarianceKind::only_ours;
    else if (!known.contains(v.resource))
      v.kind = VarianceKind::only_billed;
    else
      v.kind = gap <= std::max<std::int64_t>(10'000'000, std::abs(v.billed.value) / 1000)
                   ? VarianceKind::agrees
                   : VarianceKind::differs;
    out.push_back(std::move(v));
  }
  std::stable_sort(out.begin(), out.end(), [](const Variance& a, const Variance& b) {
    return std::abs(a.difference().value) > std::abs(b.difference().value);
  });
  return out;
}

}  // namespace billow::ledger
