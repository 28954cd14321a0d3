#include "store/sqlite_queries.h"

#include "base/limits.h"
#include "base/text.h"
#include "store/row_writer.h"

namespace billow {
namespace {

// Where a page begins: after (ended_at, id) in descending order. By id alone, `ended_at` stays at its maximum.
struct Position {
  std::int64_t ended_at = INT64_MAX;
  std::int64_t id = INT64_MAX;
  auto operator<=>(const Position&) const = default;
};

Result<Position> parse_cursor(JobOrder order, std::string_view cursor) {
  Position p;
  if (cursor.empty()) return p;
  const auto bad = [&] { return fail(Code::invalid, fmt::format("\"{}\" is not a page cursor of this listing", cursor), "begin again without a cursor"); };
  const char kind = order == JobOrder::newest ? 'n' : 'e';
  if (cursor[0] != kind) return bad();
  const auto parts = split(cursor.substr(1), '.');
  if (parts.size() != (order == JobOrder::newest ? 1u : 2u)) return bad();
  const auto id = parse_int(parts.back(), 0, INT64_MAX);
  if (!id) return bad();
  p.id = *id;
  if (order == JobOrder::recently_ended) {
    const auto ended = parse_int(parts[0], 0, INT64_MAX);
    if (!ended) return bad();
    p.ended_at = *ended;
  }
  return p;
}
std::string write_cursor(JobOrder order, const Position& p) {
  return order == JobOrder::newest ? fmt::format("n{}", p.id) : fmt::format("e{}.{}", p.ended_at, p.id);
}

bool has_label(const std::vector<Label>& labels, const Label& wanted) {
  return std::find(labels.begin(), labels.end(), wanted) != labels.end();
}

// Whether the row a query stands on passes the filter; columns as in job_columns. Cheap columns first.
bool matches(const JobFilter& f, const sqlite::Query& q) {
  if (f.project && q.number(3) != f.project.value) return false;
  if (f.user && q.number(2) != f.user.value) return false;
  if (f.array && q.number(9) != f.array.value) return false;
  if (!f.name.empty() && q.text(1) != f.name) return false;
  if (!f.states.empty() && std::find(f.states.begin(), f.states.end(), q.text(4)) == f.states.end()) return false;
  const std::int64_t ended = q.integer(7);
  if (f.ended_from && (ended == 0 || ended < f.ended_from.ns)) return false;
  if (f.ended_before && (ended == 0 || ended >= f.ended_before.ns)) return false;
  if (f.labels.empty()) return true;
  const auto labels = labels_of_json(q.text(16));
  return std::all_of(f.labels.begin(), f.labels.end(), [&](const Label& l) { return has_label(labels, l); });
}

const std::string job_by_id = fmt::format("SELECT {} FROM jobs WHERE id = ?", job_columns);

// One index range in descending order: the jobs of one state, or all of them.
struct Source {
  sqlite::Query query;
  Position at;
};

// The candidates of a page, in order, merged from one range per state. A merge of short ordered ranges costs the same whether
// a thousand or a million jobs match; a sort would not.
class Candidates {
 public:
  static Result<Candidates> open(sqlite::Db& db, const JobFilter& f, JobOrder order, Position from) {
    Candidates c;
    if (order == JobOrder::recently_ended) {
      auto q = BILLOW_TRY(db.query("SELECT ended_at, id FROM jobs INDEXED BY jobs_ended WHERE ended_at > 0 AND (ended_at, id) < (?, ?) "
                                   "ORDER BY ended_at DESC, id DESC"));
      // The upper bound of the filter is a better place to begin, if it is the lower of the two.
      if (f.ended_before) from = std::min(from, Position{f.ended_before.ns - 1, INT64_MAX});
      q.bind_all(from.ended_at, from.id);
      c.floor_ = f.ended_from.ns;
      BILLOW_TRY_VOID(c.add(std::move(q)));
      return c;
    }
    const bool by_key = f.array || !f.labels.empty() || f.user || f.project;
    if (!by_key && f.states.empty()) {
      auto q = BILLOW_TRY(db.query("SELECT 9223372036854775807, id FROM jobs WHERE id < ? ORDER BY id DESC"));
      q.bind(from.id);
      BILLOW_TRY_VOID(c.add(std::move(q)));
      return c;
    }
    c.states_ = BILLOW_TRY(states_to_merge(db, f));
    for (std::size_t i = 0; i < c.states_->size(); ++i) {
      auto q = BILLOW_TRY(range(db, f, static_cast<int>(i)));
      q.bind_all((*c.states_)[i], from.id);
      BILLOW_TRY_VOID(c.add(std::move(q)));
    }
    return c;
  }

  // The next candidate, or none.
  std::optional<Position> front() const {
    const Source* best = highest();
    if (!best || best->at.ended_at < floor_) return std::nullopt;
    return best->at;
  }
  Status pop() {
    Source* best = highest();
    if (BILLOW_TRY(best->query.step())) best->at = {best->query.integer(0), best->query.integer(1)};
    else std::erase_if(sources_, [&](const auto& s) { return s.get() == best; });
    return {};
  }

 private:
  Source* highest() const {  // there are about as many as states: a handful
    const auto it = std::max_element(sources_.begin(), sources_.end(), [](const auto& a, const auto& b) { return a->at < b->at; });
    return it == sources_.end() ? nullptr : it->get();
  }

  using States = std::shared_ptr<const std::vector<std::string>>;  // outlives the queries that have them bound
  static Result<States> states_to_merge(sqlite::Db& db, const JobFilter& f) {
    std::vector<std::string> states = f.states;
    if (states.empty()) {
      auto q = BILLOW_TRY(db.query("SELECT DISTINCT state FROM job_counts WHERE jobs > 0"));
      while (BILLOW_TRY(q.step())) states.emplace_back(q.text(0));
    }
    std::sort(states.begin(), states.end());
    states.erase(std::unique(states.begin(), states.end()), states.end());
    return std::make_shared<const std::vector<std::string>>(std::move(states));
  }
  static Result<sqlite::Query> range(sqlite::Db& db, const JobFilter& f, int slot) {
    constexpr std::string_view tail = " AND state = ? AND id < ? ORDER BY id DESC";
    const auto by = [&](std::string_view index, std::string_view where) {
      return db.query(fmt::format("SELECT 9223372036854775807, id FROM jobs INDEXED BY {} WHERE {}{}", index, where, tail), slot);
    };
    if (f.array) {
      auto q = BILLOW_TRY(by("jobs_array", "array_id <> 0 AND array_id = ?"));
      q.bind(f.array);
      return q;
    }
    if (!f.labels.empty()) {
      auto q = BILLOW_TRY(db.query("SELECT 9223372036854775807, job_id FROM job_labels WHERE key = ? AND value = ? AND state = ? "
                                   "AND job_id < ? ORDER BY job_id DESC", slot));
      q.bind_all(f.labels[0].first, f.labels[0].second);
      return q;
    }
    if (f.user) {
      auto q = BILLOW_TRY(by("jobs_user", "user_id = ?"));
      q.bind(f.user);
      return q;
    }
    if (f.project) {
      auto q = BILLOW_TRY(by("jobs_project", "project_id = ?"));
      q.bind(f.project);
      return q;
    }
    return by("jobs_state", "1");
  }
  Status add(sqlite::Query query) {
    if (!BILLOW_TRY(query.step())) return {};
    const Position at{query.integer(0), query.integer(1)};
    sources_.push_back(std::make_unique<Source>(Source{std::move(query), at}));
    return {};
  }
  States states_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::int64_t floor_ = 0;
};

}  // namespace

Result<JobPage> SqliteQueries::list_jobs(const JobFilter& filter, JobOrder order, std::string_view cursor, std::size_t limit) const {
  const Position from = BILLOW_TRY(parse_cursor(order, cursor));
  limit = std::clamp<std::size_t>(limit, 1, limits::page_items_max);
  if (filter.states.size() > 32) return fail(Code::invalid, "a listing takes at most 32 states");
  auto db = BILLOW_TRY(pool_.take());
  BILLOW_TRY_VOID(db->exec("BEGIN"));  // all ranges and rows from one snapshot
  JobPage page;
  {
    auto candidates = BILLOW_TRY(Candidates::open(*db, filter, order, from));
    std::size_t scanned = 0;
    Position last;
    while (const auto at = candidates.front()) {
      if (page.jobs.size() == limit || scanned == limits::query_rows_scanned_max) {
        page.next = write_cursor(order, last);
        break;
      }
      ++scanned;
      last = *at;
      auto row = BILLOW_TRY(db->query(job_by_id));
      row.bind(at->id);
      if (BILLOW_TRY(row.step()) && matches(filter, row)) page.jobs.push_back(read_job(row));
      BILLOW_TRY_VOID(candidates.pop());
    }
  }
  BILLOW_TRY_VOID(db->exec("COMMIT"));
  return page;
}

Result<std::optional<JobRow>> SqliteQueries::get_job(JobId id) const {
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(db->query(job_by_id));
  q.bind(id);
  if (!BILLOW_TRY(q.step())) return std::optional<JobRow>();
  return std::optional(read_job(q));
}

Result<std::vector<TaskRow>> SqliteQueries::tasks_of(JobId job) const {
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(db->query("SELECT id, node_id, node_name, state, started_at, ended_at, exit_code, doc FROM tasks WHERE job_id = ? ORDER BY id"));
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
    if (!q.is_null(6)) t.exit_code = static_cast<std::int32_t>(q.integer(6));
    t.doc = q.text(7);
    tasks.push_back(std::move(t));
  }
  return tasks;
}

Result<std::vector<StateCount>> SqliteQueries::count_jobs() const {
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(db->query("SELECT state, project_id, jobs FROM job_counts WHERE jobs > 0 ORDER BY state, project_id"));
  std::vector<StateCount> counts;
  while (BILLOW_TRY(q.step())) counts.push_back({std::string(q.text(0)), ProjectId(q.number(1)), q.number(2)});
  return counts;
}

}  // namespace billow
