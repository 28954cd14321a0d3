// What can be said about the start of a waiting job beyond its forecast (plan.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/sched/plan.h"

namespace billow::sched {

// Whether a start that capacity allows may happen: budgets decide that when a job is about to
// start, so a forecast asks them at each start it foresees.
class Admission {
 public:
  virtual ~Admission() = default;
  virtual std::unique_ptr<Admission> clone() const = 0;
  // Counts the job as started if it may start. The error says what prevents it.
  virtual Status start(JobId job, const std::vector<Placement>& placements, WallTime at) = 0;
  virtual void ended(JobId job, WallTime at) = 0;  // also: preempted
  // When time alone changes the answer next, after `at`; zero: it does not.
  virtual WallTime changes_after(WallTime at) const = 0;
};

struct Outlook {
  WallTime start;  // zero: not known
  // Why the job cannot start although it will have capacity, and from when on.
  std::optional<Error> refused;
  WallTime refused_at;
};
// forecast() with what the starts need besides capacity.
Outlook outlook(const SchedIndex& index, JobId job, WallTime now, const Admission* admission);

// By when the job starts even if jobs end early and others take their place, or if a more urgent
// job is submitted: never before forecast(). Zero: not known, or too much to simulate. It costs
// about ten forecasts.
WallTime latest_start(const SchedIndex& index,
                      JobId job,
                      WallTime now,
                      const Admission* admission = nullptr);
// Why its start cannot be predicted: "every node that could run it is closed to new jobs". Empty if
// nothing in particular prevents it.
std::string start_unknown(const SchedIndex& index, JobId job, WallTime now);

}  // namespace billow::sched
