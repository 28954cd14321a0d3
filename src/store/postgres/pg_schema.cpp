#include "store/postgres/pg_schema.h"

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/log.h"
#include "base/text.h"
#include "store/sqlite/migrations.h"

namespace billow::pg {
namespace {

// Heads that start at the same time do this one after the other.
constexpr const char* base_tables = R"sql(
  SELECT pg_advisory_xact_lock(4202718063);
  CREATE SCHEMA IF NOT EXISTS billow;
  CREATE TABLE IF NOT EXISTS leader (id BIGINT PRIMARY KEY CHECK (id = 1), epoch BIGINT NOT NULL,
    holder TEXT NOT NULL, identity TEXT NOT NULL,
    until TIMESTAMPTZ NOT NULL, commits BIGINT NOT NULL);
  INSERT INTO leader VALUES (1, 0, '', '', '-infinity', 0) ON CONFLICT DO NOTHING;
  CREATE TABLE IF NOT EXISTS shared (name TEXT PRIMARY KEY, value TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS snapshots (seq BIGINT PRIMARY KEY, sha256 TEXT NOT NULL);
  CREATE TABLE IF NOT EXISTS snapshot_parts (seq BIGINT NOT NULL, part BIGINT NOT NULL,
    bytes BYTEA NOT NULL, PRIMARY KEY (seq, part));
  CREATE OR REPLACE FUNCTION json_extract(doc TEXT, path TEXT)
    RETURNS TEXT LANGUAGE sql IMMUTABLE AS
    $$ SELECT CASE WHEN position('\u0000' IN doc) > 0 THEN ''
         ELSE doc::json #>> string_to_array(substr(path, 3), '.') END $$;
)sql";

constexpr std::size_t snapshot_part_bytes = 4 << 20;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9');
}

// The data directory's tables in PostgreSQL's dialect. Text sorts by bytes, as in SQLite.
std::string in_postgres(std::string_view sql) {
  std::string out;
  for (std::size_t i = 0; i < sql.size();) {
    if (!is_word(sql[i])) {
      out += sql[i++];
      continue;
    }
    std::size_t end = i;
    while (end < sql.size() && is_word(sql[end]))
      ++end;
    const std::string_view word = sql.substr(i, end - i);
    if (word == "INTEGER")
      out += "BIGINT";
    else if (word == "TEXT")
      out += "TEXT COLLATE \"C\"";
    else if (word != "WITHOUT" && word != "ROWID")
      out += word;
    i = end;
  }
  return out;
}

Status in_transaction(Db& db, const std::string& sql, Status (*fill)(sql::Db& db) = nullptr) {
  const auto run = [&] {
    const auto done = db.exec(sql);
    return done && fill ? fill(db) : done;
  };
  if (db.in_transaction())
    return run();
  auto done = db.exec("BEGIN");
  if (done)
    done = run();
  if (done)
    done = db.exec("COMMIT");
  if (!done)
    db.rollback();
  return done;
}

}  // namespace

Status prepare_lease(Db& db) {
  if (BILLOW_TRY(db.scalar("SELECT count(*) FROM information_schema.tables WHERE table_schema = "
                           "'billow' AND table_name = 'snapshot_parts'")) > 0)
    return {};
  auto made = in_transaction(db, base_tables);
  if (!made)
    return pass(std::move(made.error()), "making the tables");
  return {};
}

Result<std::int64_t> checked_format(Db& db) {
  if (BILLOW_TRY(db.scalar("SELECT count(*) FROM information_schema.tables WHERE table_schema = "
                           "'billow' AND table_name = 'meta'")) == 0)
    return 0;
  const auto format = BILLOW_TRY(db.scalar("SELECT value FROM meta WHERE key = 'format'"));
  if (format <= format_newest())
    return format;
  return fail(Code::unsupported,
              fmt::format("{} was written by a newer Billow (format {}; this one reads up to {})",
                          shown(db.url()), format, format_newest()),
              "upgrade billow, or use another database");
}

Status migrate(Db& db, std::int64_t up_to) {
  std::int64_t format = BILLOW_TRY(checked_format(db));
  const bool is_new = format == 0;
  for (const Migration& step : migrations()) {
    if (step.format <= format || (up_to > 0 && step.format > up_to))
      continue;
    if (!is_new)
      log_info("{}: from format {} to {} ({})", shown(db.url()), format, step.format, step.what);
    const std::string sql =
        in_postgres(step.sql) +
        fmt::format(";UPDATE meta SET value = {} WHERE key = 'format'", step.format);
    if (auto done = in_transaction(db, sql, is_new ? nullptr : step.fill); !done)
      return pass(std::move(done.error()),
                  fmt::format("bringing {} to format {}", shown(db.url()), step.format));
    format = step.format;
  }
  return {};
}

Status write_snapshot(Db& db, Seq seq, std::string_view bytes) {
  const auto at = static_cast<std::int64_t>(seq);
  BILLOW_TRY_VOID(db.run("DELETE FROM snapshots WHERE seq = ?", at));
  BILLOW_TRY_VOID(db.run("DELETE FROM snapshot_parts WHERE seq = ?", at));
  for (std::size_t part = 0, from = 0; from < bytes.size() || part == 0;
       ++part, from += snapshot_part_bytes)
    BILLOW_TRY_VOID(db.run_with_bytes(
        "INSERT INTO snapshot_parts (seq, part, bytes) VALUES (?,?,?)", at,
        static_cast<std::int64_t>(part), bytes.substr(from, snapshot_part_bytes)));
  return db.run("INSERT INTO snapshots (seq, sha256) VALUES (?,?)", at, sha256_hex(bytes));
}

const std::string& lease_end_sql() {
  static const std::string sql =
      fmt::format("clock_timestamp() + interval '{} milliseconds'", lease_life.ns / 1'000'000);
  return sql;
}

Result<Leader> leader(Db& db) {
  auto q = BILLOW_TRY(db.query("SELECT epoch, holder FROM leader WHERE id = 1"));
  if (!BILLOW_TRY(q.step()))
    return Leader{};
  return Leader{q.number(0), std::string(q.text(1))};
}

Result<std::optional<Epoch>> take_lease(Db& db,
                                        const std::string& holder,
                                        const std::string& identity) {
  auto q = BILLOW_TRY(db.query(fmt::format(
      "UPDATE leader SET epoch = epoch + 1, holder = ?1, identity = ?2, commits = 0, until = {} "
      "WHERE id = 1 AND (until <= clock_timestamp() OR (identity = ?2 AND ?2 <> '')) RETURNING "
      "epoch",
      lease_end_sql())));
  q.bind_all(holder, identity);
  if (!BILLOW_TRY(q.step()))
    return std::optional<Epoch>();
  return std::optional<Epoch>(q.number(0));
}

Status renew_lease(Db& db, Epoch epoch) {
  auto q = BILLOW_TRY(db.query(fmt::format(
      "UPDATE leader SET until = {} WHERE id = 1 AND epoch = ? RETURNING epoch", lease_end_sql())));
  q.bind(static_cast<std::int64_t>(epoch));
  if (BILLOW_TRY(q.step()))
    return {};
  return fail(Code::conflict, fmt::format("another head has taken over (ours was epoch {})", epoch),
              "this one must end");
}

void give_up_lease(Db& db, Epoch epoch) {
  if (!db.alive())
    return;
  if (db.run("UPDATE leader SET until = '-infinity' WHERE id = 1 AND epoch = ?",
             static_cast<std::int64_t>(epoch)))
    (void)db.sync();
}

}  // namespace billow::pg
