// Candidates in PostgreSQL, one chunk of rows per round trip. A chunk is the top of one short index
// range per state, merged by the server; chunks grow, because a listing that needs a second one has
// a filter that no index serves.
#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "store/job_scan.h"
#include "store/job_words.h"
#include "store/row_writer.h"

namespace billow {
namespace {

constexpr std::size_t chunk_rows_max = 2000;

class PgJobScan final : public JobScan {
 public:
  PgJobScan(
      sql::Db& db, const JobFilter& filter, JobOrder order, JobPosition from, std::size_t wanted)
      : db_(db),
        filter_(filter),
        order_(order),
        last_(from),
        chunk_(std::clamp<std::size_t>(wanted + 1, 16, chunk_rows_max)) {
    if (order_ == JobOrder::recently_ended) {
      // Begin at the upper bound of the filter if it is lower.
      if (filter_.ended_before)
        last_ = std::min(last_, JobPosition{filter_.ended_before.ns - 1, INT64_MAX});
      floor_ = filter_.ended_from.ns;
    }
  }

  Result<bool> next() override {
    if (!rows_)
      BILLOW_TRY_VOID(load());
    while (true) {
      if (BILLOW_TRY(rows_->step())) {
        ++seen_;
        last_ =
            at_ = {order_ == JobOrder::newest ? INT64_MAX : rows_->integer(7), rows_->integer(0)};
        return at_.ended_at >= floor_;
      }
      if (seen_ < chunk_)
        return false;
      chunk_ = std::min(chunk_ * 2, chunk_rows_max);
      BILLOW_TRY_VOID(load());
    }
  }
  Result<const sql::Query*> row() override { return &*rows_; }

 private:
  Status load() {
    rows_.reset();
    seen_ = 0;
    const auto limit = static_cast<std::int64_t>(chunk_);
    if (order_ == JobOrder::recently_ended) {
      rows_.emplace(BILLOW_TRY(db_.query(
          fmt::format("SELECT {} FROM jobs WHERE ended_at > 0 AND (ended_at, id) < (?, ?) "
                      "ORDER BY ended_at DESC, id DESC LIMIT ?",
                      job_columns))));
      rows_->bind_all(last_.ended_at, last_.id, limit);
      return {};
    }
    if (!filter_.words.empty() && !looked_for_rarest_) {
      looked_for_rarest_ = true;
      if ((rarest_ = BILLOW_TRY(rarest_word(db_, filter_.words))))
        above_ = above_prefix(*rarest_);
    }
    if (rarest_)
      return load_with_word(limit);
    const bool by_key = filter_.array || !filter_.labels.empty() || filter_.user || filter_.project;
    if (!by_key && filter_.states.empty()) {
      rows_.emplace(BILLOW_TRY(db_.query(
          fmt::format("SELECT {} FROM jobs WHERE id < ? ORDER BY id DESC LIMIT ?", job_columns))));
      rows_->bind_all(last_.id, limit);
      return {};
    }
    if (states_.empty())
      BILLOW_TRY_VOID(find_states());
    return load_ranges(limit);
  }

  // The jobs with a rare word, and those that a number names.
  Status load_with_word(std::int64_t limit) {
    std::int64_t named = 0;
    for (const std::string& word : filter_.words)
      if (const auto id = parse_int(word, 1, INT64_MAX))
        named = *id;
    rows_.emplace(BILLOW_TRY(db_.query(
        fmt::format("SELECT {} FROM jobs WHERE id IN (SELECT job_id FROM job_words WHERE word >= "
                    "?3 AND word < ?4 AND job_id < ?1 UNION SELECT id FROM jobs WHERE id = ?5 AND "
                    "id < ?1 ORDER BY 1 DESC LIMIT ?2) ORDER BY id DESC",
                    job_columns))));
    rows_->bind_all(last_.id, limit, std::string_view(*rarest_), std::string_view(above_), named);
    return {};
  }

  // ?1: where it begins, ?2: how many, ?3 and ?4: the key, then one parameter per state.
  Status load_ranges(std::int64_t limit) {
    const char* where = "?3 = 0 AND ?4 = ''";
    const char *table = "jobs", *id = "id";
    std::int64_t number = 0;
    std::string_view key, value;
    const bool by_label = !filter_.array && !filter_.labels.empty();
    if (filter_.array) {
      where = "array_id <> 0 AND array_id = ?3 AND ?4 = ''";
      number = static_cast<std::int64_t>(filter_.array.value);
    } else if (by_label) {
      where = "key = ?3 AND value = ?4";
      table = "job_labels";
      id = "job_id";
      key = filter_.labels[0].first;
      value = filter_.labels[0].second;
    } else if (filter_.user) {
      where = "user_id = ?3 AND ?4 = ''";
      number = static_cast<std::int64_t>(filter_.user.value);
    } else if (filter_.project) {
      where = "project_id = ?3 AND ?4 = ''";
      number = static_cast<std::int64_t>(filter_.project.value);
    }
    std::string ranges;
    for (std::size_t i = 0; i < states_.size(); ++i)
      ranges += fmt::format(
          "{}(SELECT {} AS found FROM {} WHERE {} AND state = ?{} AND {} < ?1 ORDER BY {} DESC "
          "LIMIT ?2)",
          i == 0 ? "" : " UNION ALL ", id, table, where, i + 5, id, id);
    rows_.emplace(
        BILLOW_TRY(db_.query(fmt::format("SELECT {} FROM jobs WHERE id IN (SELECT found FROM ({}) "
                                         "AS ranges ORDER BY found DESC LIMIT ?2) ORDER BY id DESC",
                                         job_columns, ranges))));
    rows_->bind_all(last_.id, limit);
    if (by_label)
      rows_->bind(key);
    else
      rows_->bind(number);
    rows_->bind(value);
    for (const std::string& state : states_)
      rows_->bind(state);
    return {};
  }

  Status find_states() {
    states_ = filter_.states;
    if (states_.empty()) {
      auto q = BILLOW_TRY(db_.query("SELECT DISTINCT state FROM job_counts WHERE jobs > 0"));
      while (BILLOW_TRY(q.step()))
        states_.emplace_back(q.text(0));
    }
    std::sort(states_.begin(), states_.end());
    states_.erase(std::unique(states_.begin(), states_.end()), states_.end());
    if (states_.empty())
      states_.emplace_back();  // no jobs at all: an empty range
    return {};
  }

  sql::Db& db_;
  const JobFilter& filter_;
  const JobOrder order_;
  JobPosition last_;
  std::size_t chunk_;
  std::size_t seen_ = 0;
  std::int64_t floor_ = INT64_MIN;
  std::vector<std::string> states_;
  bool looked_for_rarest_ = false;
  std::optional<std::string> rarest_;
  std::string above_;
  std::optional<sql::Query> rows_;
};

}  // namespace

Result<std::unique_ptr<JobScan>> open_pg_job_scan(
    sql::Db& db, const JobFilter& filter, JobOrder order, JobPosition from, std::size_t wanted) {
  return std::make_unique<PgJobScan>(db, filter, order, from, wanted);
}

}  // namespace billow
