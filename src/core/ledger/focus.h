// FOCUS 1.2 (the FinOps billing format), both ways. Out: what projects are charged, one row per
// line of the books and day, with Billow's own columns under x_. In: a provider's file, matched to
// our nodes, and the variance line by line.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/money.h"
#include "base/result.h"
#include "core/ledger/report.h"

namespace billow::ledger {

struct FocusOptions {
  std::string account_id = "billow";  // BillingAccountId
  std::string account_name;
  std::string issuer = "Billow";  // InvoiceIssuerName, ProviderName and PublisherName
};
// The mandatory columns, in the order they are written.
const std::vector<std::string>& focus_columns();
// Lines must keep at least the day apart.
std::string focus_csv(const std::vector<CostLine>& lines, const FocusOptions& options);

// ---- the provider's bill
struct BilledLine {
  std::size_t line = 0;  // of the file
  std::string provider, service, category, resource_id, resource_name;
  WallTime from, to;
  NanoUsd billed, effective;
  std::string tags;
};
struct Bill {
  std::string currency;  // one for the whole file
  std::vector<BilledLine> lines;
  std::vector<std::string> refused;  // "line 7: …", at most 100
};
Result<Bill> parse_focus(std::string_view csv);
// "2026-11-15T01:29:00Z", "2026-11-15 01:29:00", "2026-11-15"
Result<WallTime> parse_focus_time(std::string_view text);

// What we think a machine cost in some period.
struct NodeCost {
  std::string node;         // name
  std::string provider_id;  // "i-0abc…", what the provider calls it; may be empty
  WallTime from, to;
  NanoUsd cost;
};
enum class VarianceKind { agrees, differs, only_billed, only_ours };
struct Variance {
  VarianceKind kind = VarianceKind::agrees;
  std::string resource;  // node name, or the provider's where no node matches
  WallTime from, to;
  NanoUsd billed, ours;
  std::vector<std::size_t> lines;  // of the bill
  NanoUsd difference() const { return billed - ours; }
};
// By resource and day. A provider's id decides, else a name; tax and credits without a resource are
// one line of their own. Agrees: within a thousandth or a cent.
std::vector<Variance> compare(const Bill& bill, const std::vector<NodeCost>& ours);

}  // namespace billow::ledger

namespace billow {
BILLOW_ENUM_NAMES(ledger::VarianceKind,
                  {ledger::VarianceKind::agrees, "agrees"},
                  {ledger::VarianceKind::differs, "differs"},
                  {ledger::VarianceKind::only_billed, "only billed"},
                  {ledger::VarianceKind::only_ours, "only ours"});
}
