// Reads the query tables. Safe for a pool of workers: each query takes a separate read connection,
// and readers do not block the journal's writer. Queries see durable data, which may be one commit
// older than the head's state.
//
// Each query does bounded work: a page with fewer than `limit` matches within
// limits::query_rows_scanned_max rows is returned short, with a cursor to continue. Only an empty
// cursor marks the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/rows.h"

namespace billow {

enum class JobOrder {
  newest,          // by id, descending
  recently_ended,  // by ended_at, then id, descending; finished jobs only
};

// All given conditions must hold. State, project, user, array and the first label use an index; the
// rest is checked row by row.
struct JobFilter {
  std::vector<std::string> states;  // any of these; empty: any state
  ProjectId project;
  std::optional<std::vector<ProjectId>> visible;  // only these projects; absent: all
  bool elements = true;  // false: leaves out elements of arrays, but not the arrays
  UserId user;
  JobId array;
  std::string name;           // exact
  std::vector<Label> labels;  // all of these
  // Beginnings of words that it must all have (store/job_words.h); a number is also a job's own.
  std::vector<std::string> words;
  WallTime ended_from;    // ended_at ≥; zero: no bound
  WallTime ended_before;  // ended_at <; zero: no bound
};

struct JobPage {
  std::vector<JobRow> jobs;
  std::string next;  // the cursor of the next page; empty: this was the last
};

struct StateCount {
  std::string state;
  ProjectId project;
  std::uint64_t jobs = 0;
};

struct UsageQuery {
  std::int64_t day_from = 0;        // days since 1970-01-01 UTC, inclusive
  std::int64_t day_to = INT32_MAX;  // inclusive
  ProjectId project;                // zero: all
  UserId user;                      // zero: all
  bool by_day = false, by_project = false, by_user = false, by_gpu_type = false, by_class = false;
};
// A sum; a dimension that was not requested is zero or empty.
struct UsageRow {
  std::int64_t day = 0;
  ProjectId project;
  UserId user;
  std::string gpu_type;
  std::string price_class;
  NanoUsd charge;
  NanoUsd cost;
  std::int64_t gpu_milli_ms = 0;  // milli-GPU × milliseconds held
  NanoUsd idle;                   // of cost
  std::int64_t energy_mj = 0;
  NanoUsd egress = {};  // of charge and of cost
  std::int64_t egress_bytes = 0;

  bool operator==(const UsageRow&) const = default;
};

struct LeaseQuery {
  ProjectId project;      // zero: all
  JobId job;              // zero: all
  WallTime from, before;  // overlapping [from, before); before zero: no end
  LeaseId after;          // continue after this one
  std::size_t limit = 1000;
};

struct EntryQuery {
  LeaseId lease;            // zero: all
  std::uint64_t after = 0;  // continue after this number
  WallTime from, before;    // posting periods that end in [from, before); before zero: no end
  std::size_t limit = 1000;
};

// A lease that has ended, with the name under which its runs are judged.
struct RunRow {
  std::string what;  // the job's name, or its command
  LeaseRow lease;
};

class Queries {
 public:
  virtual ~Queries() = default;

  // A page in the given order. `cursor` is empty or a JobPage::next of the same filter and order.
  // Stable while jobs are added: continuing from a cursor neither repeats nor skips a job that
  // matched throughout. `limit` is capped at page_items_max.
  virtual Result<JobPage> list_jobs(const JobFilter& filter,
                                    JobOrder order,
                                    std::string_view cursor,
                                    std::size_t limit) const = 0;
  virtual Result<std::optional<JobRow>> get_job(JobId id) const = 0;
  virtual Result<std::vector<TaskRow>> tasks_of(JobId job) const = 0;               // by id
  virtual Result<std::vector<LeaseRow>> leases(const LeaseQuery& query) const = 0;  // by id
  // Leases with GPUs that overlap [from, before), in the order in which they ended (or were last
  // metered); at most `limit`.
  virtual Result<std::vector<LeaseRow>> leases_between(WallTime from,
                                                       WallTime before,
                                                       std::size_t limit) const = 0;
  // By state and project; maintained, not counted: cheap.
  virtual Result<std::vector<StateCount>> count_jobs() const = 0;
  virtual Result<std::vector<UsageRow>> usage(
      const UsageQuery& query) const = 0;  // from daily sums: cheap
  virtual Result<std::vector<EntryRow>> entries(const EntryQuery& query) const = 0;  // by number
  virtual Result<std::vector<NodeDayRow>> node_days(std::int64_t day_from,
                                                    std::int64_t day_to) const = 0;
  // A job's environment variables from the journal: the record that stored this digest, found by a
  // separate index. Empty if there is none.
  virtual Result<std::string> stored_variables(std::string_view digest) const = 0;
  // Leases with GPUs that ended in [from, before), newest first; of one project, or of all.
  virtual Result<std::vector<RunRow>> runs(ProjectId project,
                                           WallTime from,
                                           WallTime before,
                                           std::size_t limit) const = 0;
};

}  // namespace billow
