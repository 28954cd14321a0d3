// What the routes of reports share: which days and whose figures are asked for, and the lines of a
// report. Sums come from the store's daily tables and, for the day that runs, from the books in
// memory. A member sees the projects it belongs to, an admin all of them and what the fleet cost.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "api/call.h"
#include "core/control/money.h"
#include "core/ledger/report.h"

namespace billow::api::money {

struct Window {
  std::int64_t day_from = 0, day_to = 0;  // inclusive
  WallTime from() const { return {day_from * control::day_ns}; }
  WallTime to() const { return {(day_to + 1) * control::day_ns}; }
};
// "7d", "2026-11-01", "2026-11"; empty: the month that runs.
Result<std::int64_t> parse_day(std::string_view text, WallTime now);

// Whose figures are asked for and may be seen.
struct Scope {
  ProjectId project;  // none: every one that may be seen
  UserId user;
  bool everything = false;  // an admin's look at the whole installation
  std::set<ProjectId> visible;
  std::string text;  // for people: "everything", "project vision", "your projects: speech, vision"
  bool sees(ProjectId id) const { return everything || visible.contains(id); }
};

Result<Window> window_of(const Call& call);
Result<Scope> scope_of(const Call& call);

struct Report {
  std::vector<ledger::CostLine> lines;
  NanoUsd fleet;
};
// Everything a report needs, read on a worker; `answer` runs back on the loop.
void with_report(CallPtr call,
                 std::vector<ledger::Dimension> dimensions,
                 std::function<void(const Scope&, const Window&, Report)> answer);

ledger::CostLine total_of(const std::vector<ledger::CostLine>& lines);
// Grams of CO2e per kWh; 0: not asked for. with_report() has checked it.
Result<double> grid_of(const Call& call);
Json total_document(const ledger::CostLine& total, double grid);
Json days_document(const Window& window);
std::string name_of(const control::State& state, ProjectId id);
bool by(const std::vector<ledger::Dimension>& dimensions, ledger::Dimension one);

}  // namespace billow::api::money
