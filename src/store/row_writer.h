// Writes records and rows into an open transaction, and keeps the data derived from rows (labels,
// counts, daily sums) consistent with them. Used only by the journal's writer.
#pragma once

#include <map>
#include <span>

#include "store/journal.h"
#include "store/sql.h"

namespace billow {

class RowWriter {
 public:
  explicit RowWriter(sql::Db& db) : db_(db) {}
  // Writes these batches inside the caller's transaction. Of several rows of one job or task only
  // the last is written; leases are written one by one, because each step of a lease belongs to a
  // different day.
  Status write(std::span<const Batch> batches);

 private:
  Status write_record(const Record& record);
  // Changes in the number of jobs by state and project, summed over a transaction.
  using Counts = std::map<std::pair<std::string, ProjectId>, std::int64_t>;
  Status write_job(const JobRow& job, Counts& counts);
  Status write_counts(const Counts& changes);
  Status write_task(const TaskRow& task);
  Status write_lease(const LeaseRow& lease);
  Status write_entry(const EntryRow& entry);
  Status write_node_day(const NodeDayRow& row);
  Status add_labels(const JobRow& job);
  Status add_words_of(const JobRow& job);
  Status remove_labels(JobId job, std::string_view state, std::string_view labels_json);
  sql::Db& db_;
};

// Columns in the order of `job_columns`, from column `first` on.
inline constexpr std::string_view job_columns =
    "id, name, user_id, project_id, state, submitted_at, started_at, ended_at, exit_code, "
    "array_id, array_index, nodes, gpu_type, "
    "gpu_count, gpu_milli, charge, labels, doc, words";
JobRow read_job(const sql::Query& q);
std::vector<Label> labels_of_json(std::string_view json);

// The last row of each id, by id.
template <class Row, std::vector<Row> Batch::*rows>
std::vector<const Row*> last_rows(std::span<const Batch> batches) {
  std::vector<const Row*> all;
  for (const Batch& batch : batches) {
    for (const Row& row : batch.*rows)
      all.push_back(&row);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Row* a, const Row* b) { return a->id < b->id; });
  std::vector<const Row*> last;
  for (const Row* row : all) {
    if (!last.empty() && last.back()->id == row->id)
      last.back() = row;
    else
      last.push_back(row);
  }
  return last;
}

}  // namespace billow
