// Candidates in SQLite: index ranges stepped lazily and merged here. The statement names its index,
// because SQLite's planner would sort.
#include <fmt/format.h>

#include <set>

#include "base/text.h"
#include "store/job_scan.h"
#include "store/job_words.h"

namespace billow {
namespace {

// One index range in descending order: the jobs of one state, or all of them.
struct Source {
  sql::Query query;
  JobPosition at;
};

// The candidates of a page, in order, merged from one range per state. A merge of short ordered
// ranges costs the same whether a thousand or a million jobs match; a sort would not.
class Candidates {
 public:
  static Result<Candidates> open(sql::Db& db,
                                 const JobFilter& f,
                                 JobOrder order,
                                 JobPosition from) {
    Candidates c;
    if (order == JobOrder::recently_ended) {
      auto q =
          BILLOW_TRY(db.query("SELECT ended_at, id FROM jobs INDEXED BY jobs_ended WHERE ended_at "
                              "> 0 AND (ended_at, id) < (?, ?) "
                              "ORDER BY ended_at DESC, id DESC"));
      // Begin at the upper bound of the filter if it is lower.
      if (f.ended_before)
        from = std::min(from, JobPosition{f.ended_before.ns - 1, INT64_MAX});
      q.bind_all(from.ended_at, from.id);
      c.floor_ = f.ended_from.ns;
      BILLOW_TRY_VOID(c.add(std::move(q)));
      return c;
    }
    if (const auto rarest = BILLOW_TRY(rarest_word(db, f.words)))
      return with_word(db, f, *rarest, from);
    const bool by_key = f.array || !f.labels.empty() || f.user || f.project;
    if (!by_key && f.states.empty()) {
      auto q = BILLOW_TRY(
          db.query("SELECT 9223372036854775807, id FROM jobs WHERE id < ? ORDER BY id DESC"));
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

  // The jobs with a rare word, and those that a number names.
  static Result<Candidates> with_word(sql::Db& db,
                                      const JobFilter& f,
                                      const std::string& rarest,
                                      JobPosition from) {
    Candidates c;
    std::set<std::int64_t, std::greater<>> ids;
    const std::string above = above_prefix(rarest);
    auto q = BILLOW_TRY(
        db.query("SELECT job_id FROM job_words WHERE word >= ? AND word < ? AND job_id < ?"));
    q.bind_all(std::string_view(rarest), std::string_view(above), from.id);
    while (BILLOW_TRY(q.step()))
      ids.insert(q.integer(0));
    for (const std::string& word : f.words)
      if (const auto id = parse_int(word, 1, INT64_MAX); id && *id < from.id)
        ids.insert(*id);
    c.known_.assign(ids.begin(), ids.end());
    return c;
  }

  // The next candidate, or none.
  std::optional<JobPosition> front() const {
    if (next_known_ < known_.size())
      return JobPosition{INT64_MAX, known_[next_known_]};
    const Source* best = highest();
    if (!best || best->at.ended_at < floor_)
      return std::nullopt;
    return best->at;
  }
  Status pop() {
    if (next_known_ < known_.size()) {
      ++next_known_;
      return {};
    }
    Source* best = highest();
    if (BILLOW_TRY(best->query.step()))
      best->at = {best->query.integer(0), best->query.integer(1)};
    else
      std::erase_if(sources_, [&](const auto& s) { return s.get() == best; });
    return {};
  }

 private:
  Source* highest() const {  // about as many as states: a handful
    const auto it = std::max_element(sources_.begin(), sources_.end(),
                                     [](const auto& a, const auto& b) { return a->at < b->at; });
    return it == sources_.end() ? nullptr : it->get();
  }

  // Outlives the queries that bind them.
  using States = std::shared_ptr<const std::vector<std::string>>;
  static Result<States> states_to_merge(sql::Db& db, const JobFilter& f) {
    std::vector<std::string> states = f.states;
    if (states.empty()) {
      auto q = BILLOW_TRY(db.query("SELECT DISTINCT state FROM job_counts WHERE jobs > 0"));
      while (BILLOW_TRY(q.step()))
        states.emplace_back(q.text(0));
    }
    std::sort(states.begin(), states.end());
    states.erase(std::unique(states.begin(), states.end()), states.end());
    return std::make_shared<const std::vector<std::string>>(std::move(states));
  }
  static Result<sql::Query> range(sql::Db& db, const JobFilter& f, int slot) {
    constexpr std::string_view tail = " AND state = ? AND id < ? ORDER BY id DESC";
    const auto by = [&](std::string_view index, std::string_view where) {
      return db.query(
          fmt::format("SELECT 9223372036854775807, id FROM jobs INDEXED BY {} WHERE {}{}", index,
                      where, tail),
          slot);
    };
    if (f.array) {
      auto q = BILLOW_TRY(by("jobs_array", "array_id <> 0 AND array_id = ?"));
      q.bind(f.array);
      return q;
    }
    if (!f.labels.empty()) {
      auto q =
          BILLOW_TRY(db.query("SELECT 9223372036854775807, job_id FROM job_labels WHERE key = ? "
                              "AND value = ? AND state = ? "
                              "AND job_id < ? ORDER BY job_id DESC",
                              slot));
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
  Status add(sql::Query query) {
    if (!BILLOW_TRY(query.step()))
      return {};
    const JobPosition at{query.integer(0), query.integer(1)};
    sources_.push_back(std::make_unique<Source>(Source{std::move(query), at}));
    return {};
  }
  States states_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::int64_t> known_;  // instead of sources, in descending order
  std::size_t next_known_ = 0;
  std::int64_t floor_ = 0;
};

class SqliteJobScan final : public JobScan {
 public:
  explicit SqliteJobScan(sql::Db& db) : db_(db) {}
  ~SqliteJobScan() override {
    row_.reset();
    candidates_.reset();
    db_.rollback();
  }
  Status open(const JobFilter& filter, JobOrder order, JobPosition from) {
    BILLOW_TRY_VOID(db_.exec("BEGIN"));  // all ranges and rows from one snapshot
    candidates_.emplace(BILLOW_TRY(Candidates::open(db_, filter, order, from)));
    return {};
  }
  Result<bool> next() override {
    row_.reset();
    if (began_)
      BILLOW_TRY_VOID(candidates_->pop());
    began_ = true;
    const auto found = candidates_->front();
    if (!found)
      return false;
    at_ = *found;
    return true;
  }
  Result<const sql::Query*> row() override {
    row_.emplace(BILLOW_TRY(db_.query(job_by_id())));
    row_->bind(at_.id);
    if (!BILLOW_TRY(row_->step()))
      return nullptr;
    return &*row_;
  }

 private:
  sql::Db& db_;
  std::optional<Candidates> candidates_;
  std::optional<sql::Query> row_;
  bool began_ = false;
};

}  // namespace

Result<std::unique_ptr<JobScan>> open_sqlite_job_scan(sql::Db& db,
                                                      const JobFilter& filter,
                                                      JobOrder order,
                                                      JobPosition from) {
  auto scan = std::make_unique<SqliteJobScan>(db);
  BILLOW_TRY_VOID(scan->open(filter, order, from));
  return scan;
}

}  // namespace billow
