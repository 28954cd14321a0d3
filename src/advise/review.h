// The monthly review: changes of prices and instances, what to do about them, and what that saves
// for this installation's usage. A pure function of usage and two catalogues; `billow plan
// --review` shows it, and the head creates it on the 1st.
//
// Invariants: every saving is measured against real usage in the period; nothing is counted twice
// (for one GPU type the best single action counts in the total); an unknown price saves nothing.
#pragma once

#include <map>

#include "advise/portfolio.h"
#include "base/clock.h"
#include "base/json.h"
#include "core/ledger/catalogue.h"

namespace billow::advise {

// The usage of one GPU type.
struct TypeUsage {
  std::string gpu;                  // as nodes name it: "H100"
  std::vector<double> hourly_gpus;  // GPUs in use, hour by hour
  double gpu_hours() const;
  double paid_usd = 0;  // by the rates of its leases; 0: unknown
};

// One job's lease of GPUs, from the head's history.
struct UsedSpan {
  std::string gpu;
  double start_s = 0, end_s = 0, gpus = 0, paid_usd = 0;
};
// Hour by hour from `from_s` to `to_s`; spans outside are cut.
std::vector<TypeUsage> usage_of(const std::vector<UsedSpan>& spans, double from_s, double to_s);

struct ReviewAction {
  std::string gpu, what, why;
  double usd_month = 0;  // saved, at this period's usage
};
struct Review {
  std::string period;  // "2026-10"
  double days = 0;
  // Changed prices of GPU types in use, newest import compared with before.
  std::vector<std::string> changes;
  std::vector<ReviewAction> actions;  // largest first
  double usd_month = 0;               // saved in all
  double gpu_hours = 0, paid_usd = 0;
  std::vector<std::string> notes;
  std::string summary() const;  // one line, for a message's subject
};

struct ReviewInput {
  std::vector<TypeUsage> usage;  // of the period
  std::string period;
  std::vector<std::string> price_changes;  // as Catalogue::update reports them
  Market market;
  WallTime now;
};
Review review(const ReviewInput& input, const Catalogue& catalogue);
Json review_json(const Review& review);
std::string review_text(const Review& review);

// A month, by its name and its bounds in UTC: the one `now` is in, and the one before.
struct Period {
  std::string name;
  double from_s = 0, to_s = 0;
};
Period month_of(WallTime now);
Period month_before(WallTime now);

}  // namespace billow::advise
