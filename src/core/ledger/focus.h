// FOCUS 1.2 (the FinOps billing format), both ways. Export: the charges of projects, one row per
// line of the books and day, with Billow's additional columns under x_. Import: a provider's file,
// matched to our nodes, and the variance line by line.
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
// The mandatory columns, in output order.
const std::vector<std::string>& focus_columns();
// Lines must be separated at least by day.
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

// What a machine cost in some period according to the books.
struct NodeCost {
  std::string node;         // name
  std::string provider_id;  // "i-0abc…", what the provider calls it; may be empty
  WallTime from, to;
  NanoUsd cost;
};
enum class VarianceKind { agrees, differs, only_billed, only_ours };
struct Variance {
  VarianceKind kind = VarianceKind::agrees;
  std::string resource;  // node name, or the provider's if no node matches
  WallTime from, to;
  NanoUsd billed, ours;
  std::vector<std::size_t> lines;  // of the bill
  NanoUsd difference() const { return billed - ours; }
};
// By resource and day. The provider's id matches first, else a name; tax and credits without a
// resource form a separate line. Agrees: within a thousandth or a cent.
std::vector<Variance> compare(const Bill& bill, const std::vector<NodeCost>& ours);

}  // namespace billow::ledger

namespace billow {
BILLOW_ENUM_NAMES(ledger::VarianceKind,
                  {ledger::VarianceKind::agrees, "agrees"},
                  {ledger::VarianceKind::differs, "differs"},
                  {ledger::VarianceKind::only_billed, "only billed"},
                  {ledger::VarianceKind::only_ours, "only ours"});
}
