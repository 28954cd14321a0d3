// The jobs that may be on a page of a listing, in its order; the caller checks each against the
// whole filter. Each engine finds them in its own way: SQLite merges lazily stepped index ranges,
// PostgreSQL fetches chunks, because each query costs a round trip there. Either way a page costs
// the same with a thousand jobs or a million.
#pragma once

#include <memory>

#include "store/queries.h"
#include "store/sql.h"

namespace billow {

// Where a page begins: after (ended_at, id) in descending order. For order by id, `ended_at` stays
// at its maximum.
struct JobPosition {
  std::int64_t ended_at = INT64_MAX;
  std::int64_t id = INT64_MAX;
  auto operator<=>(const JobPosition&) const = default;
};

class JobScan {
 public:
  virtual ~JobScan() = default;
  virtual Result<bool> next() = 0;  // goes to the next candidate; false: there are no more
  // Its row, columns as in job_columns; null: it was deleted. Valid until next.
  virtual Result<const sql::Query*> row() = 0;
  const JobPosition& at() const { return at_; }

 protected:
  JobPosition at_;
};

// `from` is where the previous page ended; `wanted` is the probable number of rows.
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
