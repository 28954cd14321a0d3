// The jobs that may be on a page of a listing, in its order; the caller checks each against the
// whole filter. How they are found is the engine's own affair: SQLite merges lazily stepped index
// ranges, PostgreSQL gets them in chunks, for there each question costs a round trip. Either way a
// page costs the same among a thousand jobs and a million.
#pragma once

#include <memory>

#include "store/queries.h"
#include "store/sql.h"

namespace billow {

// Where a page begins: after (ended_at, id) in descending order. By id alone, `ended_at` stays at
// its maximum.
struct JobPosition {
  std::int64_t ended_at = INT64_MAX;
  std::int64_t id = INT64_MAX;
  auto operator<=>(const JobPosition&) const = default;
};

class JobScan {
 public:
  virtual ~JobScan() = default;
  virtual Result<bool> next() = 0;  // goes to the next candidate; false: there is none
  virtual Result<const sql::Query*>
  row() = 0;  // its row, columns as in job_columns; null: it is gone. Valid until next
  const JobPosition& at() const { return at_; }

 protected:
  JobPosition at_;
};

// `from` is where the page before ended; `wanted` is how many will probably be asked for.
Result<std::unique_ptr<JobScan>> open_job_scan(
    sql::Db& db, const JobFilter& filter, JobOrder order, JobPosition from, std::size_t wanted);
Result<std::unique_ptr<JobScan>> open_sqlite_job_scan(sql::Db& db,
                                                      const JobFilter& filter,
                                                      JobOrder order,
                                                      JobPosition from);
Result<std::unique_ptr<JobScan>> open_pg_job_scan(
    sql::Db& db, const JobFilter& filter, JobOrder order, JobPosition from, std::size_t wanted);

const std::string& job_by_id();  // the statement that reads one row

}  // namespace billow
