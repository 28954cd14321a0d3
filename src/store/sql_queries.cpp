#include "store/sql_queries.h"

#include "base/limits.h"
#include "base/text.h"
#include "store/job_scan.h"
#include "store/job_words.h"
#include "store/row_writer.h"

namespace billow {
namespace {

using Position = JobPosition;

Result<Position> parse_cursor(JobOrder order, std::string_view cursor) {
  Position p;
  if (cursor.empty())
    return p;
  const auto bad = [&] {
    return fail(Code::invalid, fmt::format("\"{}\" is not a page cursor of this listing", cursor),
                "begin again without a cursor");
  };
  const char kind = order == JobOrder::newest ? 'n' : 'e';
  if (cursor[0] != kind)
    return bad();
  const auto parts = split(cursor.substr(1), '.');
  if (parts.size() != (order == JobOrder::newest ? 1u : 2u))
    return bad();
  const auto id = parse_int(parts.back(), 0, INT64_MAX);
  if (!id)
    return bad();
  p.id = *id;
  if (order == JobOrder::recently_ended) {
    const auto ended = parse_int(parts[0], 0, INT64_MAX);
    if (!ended)
      return bad();
    p.ended_at = *ended;
  }
  return p;
}
std::string write_cursor(JobOrder order, const Position& p) {
  return order == JobOrder::newest ? fmt::format("n{}", p.id)
                                   : fmt::format("e{}.{}", p.ended_at, p.id);
}

bool has_label(const std::vector<Label>& labels, const Label& wanted) {
  return std::find(labels.begin(), labels.end(), wanted) != labels.end();
}

// Whether the current row of a query passes the filter; columns as in job_columns. Cheap columns
// first.
bool matches(const JobFilter& f, const sql::Query& q) {
  if (f.project && q.number(3) != f.project.value)
    return false;
  if (f.visible &&
      std::find(f.visible->begin(), f.visible->end(), ProjectId(q.number(3))) == f.visible->end())
    return false;
  if (!f.elements && q.number(9) != 0)
    return false;
  if (f.user && q.number(2) != f.user.value)
    return false;
  if (f.array && q.number(9) != f.array.value)
    return false;
  if (!f.name.empty() && q.text(1) != f.name)
    return false;
  if (!f.states.empty() && std::find(f.states.begin(), f.states.end(), q.text(4)) == f.states.end())
    return false;
  const std::int64_t ended = q.integer(7);
  if (f.ended_from && (ended == 0 || ended < f.ended_from.ns))
    return false;
  if (f.ended_before && (ended == 0 || ended >= f.ended_before.ns))
    return false;
  const auto has = [&](const std::string& word) {
    return has_word(q.text(18), word) || word == fmt::format("{}", q.integer(0));
  };
  if (!std::all_of(f.words.begin(), f.words.end(), has))
    return false;
  if (f.labels.empty())
    return true;
  const auto labels = labels_of_json(q.text(16));
  return std::all_of(f.labels.begin(), f.labels.end(),
                     [&](const Label& l) { return has_label(labels, l); });
}

}  // namespace

Result<JobPage> SqlQueries::list_jobs(const JobFilter& filter,
                                      JobOrder order,
                                      std::string_view cursor,
                                      std::size_t limit) const {
  const Position from = BILLOW_TRY(parse_cursor(order, cursor));
  limit = std::clamp<std::size_t>(limit, 1, limits::page_items_max);
  if (filter.states.size() > 32)
    return fail(Code::invalid, "a listing takes at most 32 states");
  auto db = BILLOW_TRY(pool_.take());
  JobPage page;
  const auto scan = BILLOW_TRY(open_job_scan(*db, filter, order, from, limit));
  Position last;
  for (std::size_t scanned = 0; BILLOW_TRY(scan->next()); ++scanned) {
    if (page.jobs.size() == limit || scanned == limits::query_rows_scanned_max) {
      page.next = write_cursor(order, last);
      break;
    }
    last = scan->at();
    const sql::Query* row = BILLOW_TRY(scan->row());
    if (row && matches(filter, *row))
      page.jobs.push_back(read_job(*row));
  }
  return page;
}

Result<std::optional<JobRow>> SqlQueries::get_job(JobId id) const {
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(db->query(job_by_id()));
  q.bind(id);
  if (!BILLOW_TRY(q.step()))
    return std::optional<JobRow>();
  return std::optional(read_job(q));
}

Result<std::string> SqlQueries::stored_variables(std::string_view digest) const {
  if (digest.empty())
    return std::string();
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(
      db->query("SELECT payload FROM events WHERE kind = 'environment_stored' AND "
                "json_extract(payload, '$.event.digest') = ? ORDER BY seq DESC LIMIT 1"));
  q.bind(digest);
  if (BILLOW_TRY(q.step()))
    return std::string(q.text(0));
  auto kept = BILLOW_TRY(db->query("SELECT payload FROM kept_variables WHERE digest = ?"));
  kept.bind(digest);
  return BILLOW_TRY(kept.step()) ? std::string(kept.text(0)) : std::string();
}

Result<std::vector<TaskRow>> SqlQueries::tasks_of(JobId job) const {
  auto db = BILLOW_TRY(pool_.take());
  auto q =
      BILLOW_TRY(db->query("SELECT id, node_id, node_name, state, started_at, ended_at, exit_code, "
                           "doc FROM tasks WHERE job_id = ? ORDER BY id"));
  q.bind(job);
  std::vector<TaskRow> tasks;
  while (BILLOW_TRY(q.step())) {
    TaskRow t;
    t.id = TaskId(q.number(0));
    t.job = job;
    t.node = NodeId(q.number(1));
    t.node_name = q.text(2);
    t.state = q.text(3);
    t.started_at = {q.integer(4)};
    t.ended_at = {q.integer(5)};
    if (!q.is_null(6))
      t.exit_code = static_cast<std::int32_t>(q.integer(6));
    t.doc = q.text(7);
    tasks.push_back(std::move(t));
  }
  return tasks;
}

Result<std::vector<StateCount>> SqlQueries::count_jobs() const {
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(db->query(
      "SELECT state, project_id, jobs FROM job_counts WHERE jobs > 0 ORDER BY state, project_id"));
  std::vector<StateCount> counts;
  while (BILLOW_TRY(q.step()))
    counts.push_back({std::string(q.text(0)), ProjectId(q.number(1)), q.number(2)});
  return counts;
}

}  // namespace billow
