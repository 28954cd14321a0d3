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
constexpr std::size_t prune_chunk_records = 1'000;

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
  while (health() != StoreHealth::fatal) {
    auto written = write_transaction(group);
    if (written)
      return true;
    parts_.db->rollback();
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

Status SqliteJournal::prune(Seq before) {
  std::lock_guard one_at_a_time(prune_mutex_);
  const auto kept = parts_.snapshots.list();
  const Seq older = kept.size() < 2 ? 0 : kept[1];
  if (before > older + 1) {
    return fail(
        Code::conflict,
        fmt::format("records from {} on are still needed: the older of two snapshots is at {}",
                    older + 1, older));
  }
  before = std::min(before, durable_seq());  // the last record stays: it defines the next number
  auto db = BILLOW_TRY(sqlite::Db::open(parts_.db->path(), sqlite::Mode::read_write, 256));
  while (true) {  // in small steps, with commits in between
    const auto first = BILLOW_TRY(db->scalar("SELECT min(seq) FROM events", 0));
    if (first == 0 || static_cast<Seq>(first) >= before)
      return {};
    const Seq end = std::min<Seq>(before, static_cast<Seq>(first) + prune_chunk_records);
    BILLOW_TRY_VOID(db->run("DELETE FROM events WHERE seq < ?", static_cast<std::int64_t>(end)));
  }
}

}  // namespace billow
