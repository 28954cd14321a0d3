#include "store/postgres/pg_journal.h"

#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "store/postgres/pg_schema.h"

namespace billow {
namespace {

constexpr auto server_away_pause = std::chrono::milliseconds(200);
constexpr std::int64_t prune_chunk_records = 10'000;

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
    std::vector<std::pair<std::int64_t, std::string>> kept;
    {
      auto q = BILLOW_TRY(
          db->query("SELECT seq, sha256 FROM snapshots WHERE seq <= ? ORDER BY seq DESC"));
      q.bind(static_cast<std::int64_t>(durable_seq()));
      while (BILLOW_TRY(q.step()))
        kept.emplace_back(q.integer(0), q.text(1));
    }
    for (const auto& [seq, sha256] : kept) {
      std::string bytes;
      for (std::int64_t part = 0;; ++part) {
        auto q =
            BILLOW_TRY(db->query("SELECT bytes FROM snapshot_parts WHERE seq = ? AND part = ?"));
        q.bind_all(seq, part);
        if (!BILLOW_TRY(q.step()))
          break;
        bytes += pg::bytes_of_hex(q.text(0));
      }
      if (sha256_hex(bytes) == sha256) {
        found = Snapshot{static_cast<Seq>(seq), std::move(bytes)};
        break;
      }
      log_warn("snapshot {} is not usable: an older one and more of the journal take its place",
               seq);
    }
  }
  BILLOW_TRY_VOID(check_beginning(found));
  return found;
}

Status PgJournal::prune(Seq before) {
  std::lock_guard one_at_a_time(prune_mutex_);
  auto db = BILLOW_TRY(pg::Db::connect(parts_.db->url()));
  const auto older = static_cast<Seq>(
      BILLOW_TRY(db->scalar("SELECT seq FROM snapshots ORDER BY seq DESC OFFSET 1 LIMIT 1")));
  if (before > older + 1) {
    return fail(
        Code::conflict,
        fmt::format("records from {} on are still needed: the older of two snapshots is at {}",
                    older + 1, older));
  }
  // The last record stays: it defines the next number.
  const auto end = static_cast<std::int64_t>(std::min(before, durable_seq()));
  while (true) {
    const auto first = BILLOW_TRY(db->scalar("SELECT min(seq) FROM events"));
    if (first == 0 || first >= end)
      return {};
    BILLOW_TRY_VOID(
        db->run("DELETE FROM events WHERE seq < ?", std::min(end, first + prune_chunk_records)));
  }
}

}  // namespace billow
