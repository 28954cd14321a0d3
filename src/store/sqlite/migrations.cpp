#include "store/sqlite/migrations.h"

#include "base/log.h"
#include "store/job_words.h"

namespace billow {
namespace {

constexpr std::int64_t application_id =
    0x42696c6c;  // "Bill" in the file's header: tells ours from any other SQLite file

// Columns are named like the fields of the rows. A listing merges one ordered index range per
// state, hence (…, state, id) everywhere.
constexpr Migration steps[] = {
    {1, "the journal", R"sql(
      CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
      INSERT INTO meta VALUES ('format', 0), ('epoch', 0);
      CREATE TABLE events (seq INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, at INTEGER NOT NULL,
                           kind TEXT NOT NULL, payload TEXT NOT NULL);
    )sql"},
    {2, "query tables of jobs, tasks and leases", R"sql(
      CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, user_id INTEGER NOT NULL,
        project_id INTEGER NOT NULL, state TEXT NOT NULL,
        submitted_at INTEGER NOT NULL, started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL,
        exit_code INTEGER,
        array_id INTEGER NOT NULL, array_index INTEGER NOT NULL, nodes TEXT NOT NULL,
        gpu_type TEXT NOT NULL,
        gpu_count INTEGER NOT NULL, gpu_milli INTEGER NOT NULL, charge INTEGER NOT NULL,
        labels TEXT NOT NULL, doc TEXT NOT NULL);
      CREATE INDEX jobs_state ON jobs (state, id);
      CREATE INDEX jobs_project ON jobs (project_id, state, id);
      CREATE INDEX jobs_user ON jobs (user_id, state, id);
      CREATE INDEX jobs_array ON jobs (array_id, state, id) WHERE array_id <> 0;
      CREATE INDEX jobs_ended ON jobs (ended_at, id) WHERE ended_at > 0;
      CREATE TABLE job_labels (key TEXT NOT NULL, value TEXT NOT NULL, state TEXT NOT NULL,
        job_id INTEGER NOT NULL,
        PRIMARY KEY (key, value, state, job_id)) WITHOUT ROWID;
      CREATE TABLE tasks (
        id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, node_id INTEGER NOT NULL,
        node_name TEXT NOT NULL, state TEXT NOT NULL,
        started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL, exit_code INTEGER,
        doc TEXT NOT NULL);
      CREATE INDEX tasks_job ON tasks (job_id, id);
      CREATE TABLE leases (
        id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, task_id INTEGER NOT NULL,
        project_id INTEGER NOT NULL,
        user_id INTEGER NOT NULL, node_name TEXT NOT NULL, gpu_type TEXT NOT NULL,
        milli INTEGER NOT NULL,
        price_class TEXT NOT NULL, from_at INTEGER NOT NULL, to_at INTEGER NOT NULL,
        open INTEGER NOT NULL,
        charge INTEGER NOT NULL, cost INTEGER NOT NULL);
      CREATE INDEX leases_job ON leases (job_id, id);
      CREATE INDEX leases_project ON leases (project_id, id);
    )sql"},
    {3, "kept counts of jobs and daily sums of usage", R"sql(
      CREATE TABLE job_counts (state TEXT NOT NULL, project_id INTEGER NOT NULL,
        jobs INTEGER NOT NULL,
        PRIMARY KEY (state, project_id)) WITHOUT ROWID;
      INSERT INTO job_counts SELECT state, project_id, count(*) FROM jobs GROUP BY state,
        project_id;
      CREATE TABLE usage_daily (
        day INTEGER NOT NULL, project_id INTEGER NOT NULL, user_id INTEGER NOT NULL,
        gpu_type TEXT NOT NULL,
        price_class TEXT NOT NULL, charge INTEGER NOT NULL, cost INTEGER NOT NULL,
        gpu_milli_ms INTEGER NOT NULL,
        PRIMARY KEY (day, project_id, user_id, gpu_type, price_class)) WITHOUT ROWID;
      INSERT INTO usage_daily
        SELECT to_at / 86400000000000, project_id, user_id, gpu_type, price_class, sum(charge),
        sum(cost),
               sum(milli * ((to_at - from_at) / 1000000))
        FROM leases GROUP BY 1, 2, 3, 4, 5;
    )sql"},
    {4, "the books: idle cost, energy and peaks of leases, postings, what nodes cost by day", R"sql(
      ALTER TABLE leases ADD COLUMN idle INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE leases ADD COLUMN energy_mj INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE leases ADD COLUMN gpus INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE leases ADD COLUMN card_mem_mib INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE leases ADD COLUMN mem_peak_mib INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE leases ADD COLUMN sm_peak_pct INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE leases ADD COLUMN engine_p95_pct INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE leases ADD COLUMN measured INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE usage_daily ADD COLUMN idle INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE usage_daily ADD COLUMN energy_mj INTEGER NOT NULL DEFAULT 0;
      CREATE TABLE entries (
        number INTEGER PRIMARY KEY, kind TEXT NOT NULL, node_id INTEGER NOT NULL,
        lease_id INTEGER NOT NULL, job_id INTEGER NOT NULL,
        project_id INTEGER NOT NULL, user_id INTEGER NOT NULL, from_at INTEGER NOT NULL,
        to_at INTEGER NOT NULL,
        amount INTEGER NOT NULL, correction INTEGER NOT NULL);
      CREATE INDEX entries_lease ON entries (lease_id, number) WHERE lease_id <> 0;
      CREATE TABLE node_days (day INTEGER NOT NULL, node_name TEXT NOT NULL, pool TEXT NOT NULL,
        cost INTEGER NOT NULL,
        PRIMARY KEY (day, node_name)) WITHOUT ROWID;
    )sql"},
    {5, "traffic that left, and what providers call their machines", R"sql(
      ALTER TABLE leases ADD COLUMN egress INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE leases ADD COLUMN egress_bytes INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE usage_daily ADD COLUMN egress INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE usage_daily ADD COLUMN egress_bytes INTEGER NOT NULL DEFAULT 0;
      ALTER TABLE node_days ADD COLUMN provider_id TEXT NOT NULL DEFAULT '';
    )sql"},
    {6, "variables of jobs that have ended, found in the journal by their digest", R"sql(
      CREATE INDEX events_variables ON events (json_extract(payload,
        '$.event.digest')) WHERE kind = 'environment_stored';
    )sql"},
    // No table changes. Older programs would show the text of a finished job as its document, so
    // they must not open a database with the new records.
    {7, "finished jobs stored as records of their own form", ""},
    {8, "a chain of hashes over the journal", R"sql(
      ALTER TABLE events ADD COLUMN link TEXT NOT NULL DEFAULT '';
    )sql"},
    {9, "jobs found by their words, and leases by their time and cards", R"sql(
      ALTER TABLE jobs ADD COLUMN words TEXT NOT NULL DEFAULT '';
      CREATE TABLE job_words (word TEXT NOT NULL, job_id INTEGER NOT NULL,
        PRIMARY KEY (word, job_id)) WITHOUT ROWID;
      ALTER TABLE leases ADD COLUMN cards TEXT NOT NULL DEFAULT '';
      CREATE INDEX leases_to ON leases (to_at, id);
    )sql",
     fill_words},
    {10, "what outlives the journal's old records", R"sql(
      CREATE TABLE kept_events (seq INTEGER PRIMARY KEY, epoch INTEGER NOT NULL,
        at INTEGER NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL, link TEXT NOT NULL,
        link_before TEXT NOT NULL);
      CREATE TABLE kept_variables (digest TEXT PRIMARY KEY, payload TEXT NOT NULL) WITHOUT ROWID;
      CREATE TABLE pruned (seq INTEGER PRIMARY KEY, link TEXT NOT NULL);
    )sql"},
};

Status apply_step(sqlite::Db& db, const Migration& step) {
  BILLOW_TRY_VOID(db.exec("BEGIN IMMEDIATE"));
  Status status = db.exec(step.sql);
  if (status && step.fill)
    status = step.fill(db);
  if (status)
    status = db.exec(fmt::format("UPDATE meta SET value = {} WHERE key = 'format'", step.format));
  if (status)
    status = db.exec(fmt::format("PRAGMA application_id = {}", application_id));
  if (status)
    status = db.exec("COMMIT");
  if (!status)
    db.rollback();
  return status;
}

}  // namespace

std::span<const Migration> migrations() {
  return steps;
}
std::int64_t format_newest() {
  return steps[std::size(steps) - 1].format;
}

Status migrate(sqlite::Db& db, const std::string& data_dir) {
  const auto tables = BILLOW_TRY(db.scalar("SELECT count(*) FROM sqlite_schema"));
  const auto id = BILLOW_TRY(db.scalar("PRAGMA application_id"));
  if (tables > 0 && id != application_id) {
    return fail(Code::conflict, fmt::format("{} is a database of another program", db.path()),
                "use --data with another directory");
  }
  std::int64_t format = 0;
  if (tables > 0)
    format = BILLOW_TRY(db.scalar("SELECT value FROM meta WHERE key = 'format'"));
  if (format > format_newest()) {
    return fail(
        Code::unsupported,
        fmt::format(
            "data directory {} was written by a newer Billow (format {}; this one reads up to {})",
            data_dir, format, format_newest()),
        "upgrade billow or use --data with another directory");
  }
  for (const Migration& step : steps) {
    if (step.format <= format)
      continue;
    if (tables > 0)
      log_info("data directory {}: from format {} to {} ({})", data_dir, format, step.format,
               step.what);
    if (auto done = apply_step(db, step); !done) {
      return pass(std::move(done.error()),
                  fmt::format("bringing data directory {} to format {}", data_dir, step.format));
    }
    format = step.format;
  }
  return {};
}

}  // namespace billow
