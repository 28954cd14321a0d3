#include "store/postgres/pg_journal.h"

#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "store/postgres/pg_schema.h"

namespace billow {
namespace {

constexpr auto server_away_pause = std::chrono::milliseconds(200);

// The bytes of a snapshot, if they match their checksum.
Result<std::optional<std::string>> load_intact(sql::Db& db, Seq snapshot) {
  const auto seq = static_cast<std::int64_t>(snapshot);
  std::string bytes;
  for (std::int64_t part = 0;; ++part) {
    auto q = BILLOW_TRY(db.query("SELECT bytes FROM snapshot_parts WHERE seq = ? AND part = ?"));
    q.bind_all(seq, part);
    if (!BILLOW_TRY(q.step()))
      break;
    bytes += pg::bytes_of_hex(q.text(0));
  }
  auto q = BILLOW_TRY(db.query("SELECT sha256 FROM snapshots WHERE seq = ?"));
  q.bind(seq);
  if (!BILLOW_TRY(q.step()) || sha256_hex(bytes) != q.text(0))
    return std::optional<std::string>();
  return std::optional(std::move(bytes));
}

}  // namespace

Result<std::unique_ptr<PgJournal>> PgJournal::create(Parts parts) {
  BILLOW_TRY_VOID(parts.db->pipeline());
  return std::unique_ptr<PgJournal>(new PgJournal(std::move(parts)));
}

PgJournal::PgJournal(Parts parts)
    : QueuedJournal({parts.epoch, std::move(parts.last), std::move(parts.hooks), parts.readers,
                     std::chrono::milliseconds(pg::lease_renewal.ns / 1'000'000)}),
      parts_(std::move(parts)),
      rows_(*parts_.db) {
  start_writer();
}

PgJournal::~PgJournal() {
  stop_writer();
  // So that a standby need not wait for the lease to expire.
  if (health() != StoreHealth::fatal)
    pg::give_up_lease(*parts_.db, parts_.epoch);
}

bool PgJournal::commit_group(const std::vector<Batch>& group) {
  if (!persist([&] { return write_transaction(group); })) {
    log_error("{} batches of events are not durable", group.size());
    return false;
  }
  ++commits_;
  return true;
}

void PgJournal::quiet_moment() {
  (void)persist([&] { return pg::renew_lease(*parts_.db, parts_.epoch); });
}

bool PgJournal::persist(const std::function<Status()>& transaction) {
  bool away = false;
  while (health() != StoreHealth::fatal) {
    Status done = parts_.db->alive() ? Status() : parts_.db->reconnect();
    if (done)
      done = transaction();
    if (done) {
      if (away)
        log_info("PostgreSQL is there again");
      become(StoreHealth::ok, {});
      return true;
    }
    parts_.db->rollback();
    if (done.error().code == Code::storage_full) {
      become(StoreHealth::disk_low, done.error());
    } else if (done.error().code == Code::unavailable) {
      if (!away)
        log_warn("{}; waiting for it, nothing is answered before it is durable",
                 done.error().message);
      away = true;
    } else {
      become(StoreHealth::fatal, std::move(done.error()).in("writing the journal"));
      return false;
    }
    if (!pause(server_away_pause))
      return false;
  }
  return false;
}

Status PgJournal::write_transaction(const std::vector<Batch>& group) {
  pg::Db& db = *parts_.db;
  BILLOW_TRY_VOID(db.run("BEGIN"));
  {
    auto q = BILLOW_TRY(db.query("SELECT epoch, commits FROM leader WHERE id = 1 FOR UPDATE"));
    const bool there = BILLOW_TRY(q.step());
    const Epoch epoch = there ? q.number(0) : 0;
    if (epoch != parts_.epoch)
      return fail(
          Code::conflict,
          fmt::format("another head has taken over (epoch {}, ours was {})", epoch, parts_.epoch),
          "this one must end");
    if (q.integer(1) > commits_) {  // this commit has happened: its answer was lost
      BILLOW_TRY_VOID(db.run("ROLLBACK"));
      return db.sync();
    }
  }
  static const std::string renewal =
      fmt::format("UPDATE leader SET until = {}, commits = ? WHERE id = 1", pg::lease_end_sql());
  BILLOW_TRY_VOID(db.run(renewal, commits_ + 1));
  BILLOW_TRY_VOID(rows_.write(group));
  BILLOW_TRY_VOID(db.run("COMMIT"));
  return db.sync();
}

// Needs no lock: a snapshot of durable state is valid whichever head leads now.
Status PgJournal::save_snapshot(Seq seq, std::string_view bytes) {
  if (bytes.size() > limits::snapshot_bytes_max)
    return fail(Code::too_large, "the snapshot is over its limit");
  BILLOW_TRY_VOID(wait_until_durable(seq));
  auto db = BILLOW_TRY(pg::Db::connect(parts_.db->url()));
  BILLOW_TRY_VOID(db->exec("BEGIN"));
  BILLOW_TRY_VOID(pg::write_snapshot(*db, seq, bytes));
  return db->exec(
      "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT "
      "2);"
      "DELETE FROM snapshot_parts WHERE seq NOT IN (SELECT seq FROM snapshots); COMMIT");
}

Result<std::optional<Snapshot>> PgJournal::load_snapshot() const {
  std::optional<Snapshot> found;
  {
    auto db = BILLOW_TRY(readers().take());
    std::vector<Seq> kept;
    {
      auto q = BILLOW_TRY(db->query("SELECT seq FROM snapshots WHERE seq <= ? ORDER BY seq DESC"));
      q.bind(static_cast<std::int64_t>(durable_seq()));
      while (BILLOW_TRY(q.step()))
        kept.push_back(q.number(0));
    }
    for (const Seq seq : kept) {
      auto bytes = BILLOW_TRY(load_intact(*db, seq));
      if (bytes) {
        found = Snapshot{seq, std::move(*bytes)};
        break;
      }
      log_warn("snapshot {} is not usable: an older one and more of the journal take its place",
               seq);
    }
  }
  BILLOW_TRY_VOID(check_beginning(found));
  return found;
}

Result<std::unique_ptr<sql::Db>> PgJournal::open_pruner() {
  return BILLOW_TRY(pg::Db::connect(parts_.db->url()));
}

// Not locked: a head that has just been replaced removes at most one step more, and only what no
// head needs.
Result<bool> PgJournal::before_prune_step(sql::Db& db) {
  const auto epoch = static_cast<Epoch>(BILLOW_TRY(db.scalar("SELECT epoch FROM leader")));
  if (epoch != parts_.epoch)
    return fail(Code::conflict, "another head has taken over");
  return true;
}

Result<std::vector<Seq>> PgJournal::kept_snapshots() {
  auto db = BILLOW_TRY(readers().take());
  auto q = BILLOW_TRY(db->query("SELECT seq FROM snapshots ORDER BY seq DESC"));
  std::vector<Seq> kept;
  while (BILLOW_TRY(q.step()))
    kept.push_back(q.number(0));
  return kept;
}

Result<bool> PgJournal::is_intact(Seq snapshot) {
  auto db = BILLOW_TRY(readers().take());
  return BILLOW_TRY(load_intact(*db, snapshot)).has_value();
}

}  // namespace billow
