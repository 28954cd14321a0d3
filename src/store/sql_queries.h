// The query tables read through SQL, on either engine. Finding the jobs of a page differs by engine
// and is in job_scan.h.
#pragma once

#include "store/queries.h"
#include "store/read_pool.h"

namespace billow {

class SqlQueries final : public Queries {
 public:
  explicit SqlQueries(ReadPool& pool) : pool_(pool) {}
  Result<JobPage> list_jobs(const JobFilter& filter,
                            JobOrder order,
                            std::string_view cursor,
                            std::size_t limit) const override;
  Result<std::optional<JobRow>> get_job(JobId id) const override;
  Result<std::vector<TaskRow>> tasks_of(JobId job) const override;
  Result<std::vector<LeaseRow>> leases(const LeaseQuery& query) const override;
  Result<std::vector<LeaseRow>> leases_between(WallTime from,
                                               WallTime before,
                                               std::size_t limit) const override;
  Result<std::vector<StateCount>> count_jobs() const override;
  Result<std::vector<UsageRow>> usage(const UsageQuery& query) const override;
  Result<std::vector<EntryRow>> entries(const EntryQuery& query) const override;
  Result<std::vector<NodeDayRow>> node_days(std::int64_t day_from,
                                            std::int64_t day_to) const override;
  Result<std::string> stored_variables(std::string_view digest) const override;
  Result<std::vector<RunRow>> runs(ProjectId project,
                                   WallTime from,
                                   WallTime before,
                                   std::size_t limit) const override;

 private:
  ReadPool& pool_;
};

}  // namespace billow
