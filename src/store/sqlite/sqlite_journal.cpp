#include "store/sqlite/sqlite_journal.h"

#include "base/limits.h"
#include "base/log.h"

namespace billow {
namespace {

// 4 KiB pages. A checkpoint copies the WAL's pages into the database and syncs it, some
// milliseconds per thousand pages: above the first bound it runs when nothing was queued for a
// while, above the second between two commits.
constexpr std::int64_t checkpoint_pages_when_idle = 1'000;
constexpr std::int64_t checkpoint_pages_always = 8'000;
constexpr auto idle_after = std::chrono::milliseconds(250);
constexpr auto full_disk_retry = std::chrono::milliseconds(100);
constexpr int pruner_cache_kib = 1 << 10;
constexpr std::int64_t prune_wal_pages_max = 16'000;  // 64 MiB
// Something else holds the database's lock: a removal of old records, an administrator's tool.
constexpr auto locked_patience = std::chrono::minutes(10);

}  // namespace

SqliteJournal::SqliteJournal(Parts parts)
    : QueuedJournal(
          {parts.epoch, std::move(parts.last), std::move(parts.hooks), parts.readers, idle_after}),
      parts_(std::move(parts)),
      rows_(*parts_.db) {
  if (!parts_.ballast.held())
    become(StoreHealth::disk_low,
           Error{Code::storage_full, "no space for the ballast file", "free some space"});
  start_writer();
}

SqliteJournal::~SqliteJournal() {
  stop_writer();
}

void SqliteJournal::after_commit() {
  if (parts_.db->wal_pages() >= checkpoint_pages_always || health() == StoreHealth::disk_low)
    quiet_moment();
}

bool SqliteJournal::commit_group(const std::vector<Batch>& group) {
  const auto began = std::chrono::steady_clock::now();
  while (health() != StoreHealth::fatal) {
    auto written = write_transaction(group);
    if (written)
      return true;
    parts_.db->rollback();
    if (written.error().code == Code::unavailable &&
        std::chrono::steady_clock::now() - began < locked_patience) {
      log_warn("writing the journal waits: {}", written.error().message);
      if (!pause(full_disk_retry))
        return false;
      continue;
    }
    if (written.error().code != Code::storage_full) {
      become(StoreHealth::fatal, std::move(written.error()).in("writing the journal"));
      return false;
    }
    if (parts_.ballast.held()) {
      parts_.ballast.release();
      become(StoreHealth::disk_low, written.error());
    } else if (!wait_for_space()) {
      log_error("stopping with a full disk: {} batches of events are not durable", group.size());
      return false;
    }
  }
  return false;
}

Status SqliteJournal::write_transaction(const std::vector<Batch>& group) {
  BILLOW_TRY_VOID(parts_.db->run("BEGIN IMMEDIATE"));
  const auto epoch = BILLOW_TRY(parts_.db->scalar("SELECT value FROM meta WHERE key = 'epoch'"));
  if (static_cast<Epoch>(epoch) != parts_.epoch) {
    return fail(Code::conflict,
                fmt::format("another head took over this data directory (epoch {}, ours is {})",
                            epoch, parts_.epoch));
  }
  BILLOW_TRY_VOID(rows_.write(group));
  return parts_.db->run("COMMIT");
}

bool SqliteJournal::wait_for_space() {
  // A WAL that was copied into the database is written again from its start, which needs no new
  // space.
  if (auto done = parts_.db->checkpoint(); !done && done.error().code != Code::storage_full)
    log_warn("checkpoint: {}", done.error().message);
  return pause(full_disk_retry);
}

void SqliteJournal::quiet_moment() {
  if (health() == StoreHealth::disk_low && parts_.ballast.space_again() && parts_.ballast.make()) {
    log_info("the disk has free space again");
    become(StoreHealth::ok, {});
  }
  if (parts_.db->wal_pages() < checkpoint_pages_when_idle)
    return;
  if (auto done = parts_.db->checkpoint(); !done)
    log_warn("checkpoint: {}", done.error().message);
  parts_.db->release_memory();
}

Status SqliteJournal::save_snapshot(Seq seq, std::string_view bytes) {
  if (bytes.size() > limits::snapshot_bytes_max)
    return fail(Code::too_large, "the snapshot is over its limit");
  BILLOW_TRY_VOID(wait_until_durable(seq));
  return parts_.snapshots.save(seq, bytes);
}

Result<std::optional<Snapshot>> SqliteJournal::load_snapshot() const {
  auto snapshot = BILLOW_TRY(parts_.snapshots.load(durable_seq()));
  BILLOW_TRY_VOID(check_beginning(snapshot));
  return snapshot;
}

// A removal that a power cut undoes is repeated, so it is not synced.
Result<std::unique_ptr<sql::Db>> SqliteJournal::open_pruner() {
  auto db =
      BILLOW_TRY(sqlite::Db::open(parts_.db->path(), sqlite::Mode::write_too, pruner_cache_kib));
  BILLOW_TRY_VOID(db->exec("PRAGMA synchronous=NORMAL"));
  return std::unique_ptr<sql::Db>(std::move(db));
}

// The writer sees how long the WAL is only when it commits, so an idle head would let it grow.
// While somebody reads an old state, as a backup does, the WAL cannot shrink: removals wait.
Result<bool> SqliteJournal::before_prune_step(sql::Db& db) {
  auto& own = static_cast<sqlite::Db&>(db);
  if (own.wal_pages() >= checkpoint_pages_when_idle)
    BILLOW_TRY_VOID(own.checkpoint());
  return own.wal_pages() < prune_wal_pages_max;
}

Result<std::vector<Seq>> SqliteJournal::kept_snapshots() {
  return parts_.snapshots.list();
}

Result<bool> SqliteJournal::is_intact(Seq snapshot) {
  return parts_.snapshots.intact(snapshot);
}

}  // namespace billow
