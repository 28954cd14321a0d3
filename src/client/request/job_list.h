// Jobs as rows and as a page of facts: pure functions of the head's documents.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "client/frame/client.h"
#include "client/frame/table.h"

namespace billow::client {

struct JobFilter {
  std::string state, project, user, name, array;
  std::vector<std::string> labels;  // "team=vision"
  bool expand = false;              // the elements of arrays too, not one document per array
  bool reasons = false;             // why each one waits
  std::size_t limit = 100;
};
// Pages joined, up to the limit: {"jobs":[…],"next":"…"}.
Result<Json> fetch_jobs(Client& client, const JobFilter& filter);

// Which of these label keys no recent job has, with the nearest known one. A misspelt key would
// otherwise look like "no such jobs".
Status check_label_keys(Client& client, const std::vector<std::string>& labels);
// Sorts by "cost", "name", "time"…; an unknown column is an error with the nearest name.
Status sort_jobs(std::vector<Json>& jobs, const std::string& column, WallTime now);

// One document per array: the array's own where there is one, else made of the elements seen.
std::vector<Json> collapse_arrays(const std::vector<Json>& jobs);
Table jobs_table(const std::vector<Json>& jobs, WallTime now);
// Its name, else its command; of an array's element with the index: "sweep[3]".
std::string name_of(const Json& job);
std::string whole_seconds(std::int64_t s);  // "45s", "5m 3s"
// How long a job has run, without the time it was suspended or back in the queue; "-" before its
// start.
std::string run_time(const Json& job, WallTime now);
std::string describe_text(const Json& job, WallTime now, const Look& look);
// Which part of its job a task is, numbered like the lines of its output: "rank 1", "ranks 2 to 3"
// of a node with two processes, or its role.
std::string member_text(const Json& job, const Json& task);

}  // namespace billow::client
