#include "store/job_scan.h"

#include <fmt/format.h>

#include "store/row_writer.h"

namespace billow {

const std::string& job_by_id() {
  static const std::string sql = fmt::format("SELECT {} FROM jobs WHERE id = ?", job_columns);
  return sql;
}

Result<std::unique_ptr<JobScan>> open_job_scan(
    sql::Db& db, const JobFilter& filter, JobOrder order, JobPosition from, std::size_t wanted) {
  switch (db.engine()) {
    case sql::Engine::sqlite:
      return open_sqlite_job_scan(db, filter, order, from);
    case sql::Engine::postgres:
      return open_pg_job_scan(db, filter, order, from, wanted);
  }
  return fail(Code::internal, "an engine nobody knows");
}

}  // namespace billow
