#include "store/sqlite_journal.h"

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"

namespace billow {
namespace {

// 4 KiB pages. A checkpoint copies the WAL's pages into the database and syncs it, some milliseconds per thousand pages: from
// the first bound on it is done when nothing was queued for a while, from the second between two commits.
constexpr std::int64_t checkpoint_pages_when_idle = 1'000;
constexpr std::int64_t checkpoint_pages_always = 8'000;
constexpr auto idle_after = std::chrono::milliseconds(250);
constexpr auto full_disk_retry = std::chrono::milliseconds(100);
constexpr std::size_t read_chunk_records = 256;
constexpr std::size_t prune_chunk_records = 1'000;

std::size_t bytes_of(const Batch& batch) {
  std::size_t bytes = sizeof(Batch);
  for (const auto& r : batch.records) bytes += sizeof r + r.kind.size() + r.payload.size();
  for (const auto& j : batch.jobs) bytes += sizeof j + j.doc.size();
  for (const auto& t : batch.tasks) bytes += sizeof t + t.doc.size();
  return bytes + batch.leases.size() * sizeof(LeaseRow);
}

void call(const JournalHooks& hooks, std::function<void()> callback) {
  if (hooks.post) hooks.post(std::move(callback));
  else callback();
}

}  // namespace

SqliteJournal::SqliteJournal(Parts parts)
    : parts_(std::move(parts)), rows_(*parts_.db), last_appended_(parts_.last_seq), durable_(parts_.last_seq),
      hooks_(std::make_shared<const JournalHooks>(std::move(parts_.hooks))) {
  if (!parts_.ballast.held()) become(StoreHealth::disk_low, Error{Code::storage_full, "no room for the ballast file", "free some space"});
  writer_ = std::thread([this] { write_loop(); });
}

SqliteJournal::~SqliteJournal() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  moved_.notify_all();
  writer_.join();
}

void SqliteJournal::set_hooks(JournalHooks hooks) {
  std::lock_guard lock(health_mutex_);
  {
    std::lock_guard inner(mutex_);
    hooks_ = std::make_shared<const JournalHooks>(std::move(hooks));
  }
  if (health() != StoreHealth::ok) {  // who listens from now on must learn of it
    call(*hooks_, [hooks = hooks_, health = health(), why = why_] { if (hooks->on_health) hooks->on_health(health, why); });
  }
}

Seq SqliteJournal::append(Batch batch) {
  for (Record& record : batch.records) {
    record.seq = ++last_appended_;
    record.epoch = parts_.epoch;
  }
  const std::size_t queued = queued_bytes_.fetch_add(bytes_of(batch), std::memory_order_relaxed);
  // A healthy disk catches up with any burst; a full one may stay full, and memory must not follow it.
  if (queued > limits::journal_queue_bytes_max && health() == StoreHealth::disk_low) {
    become(StoreHealth::fatal, Error{Code::exhausted, fmt::format("the journal is {} MiB behind and cannot be written", queued >> 20),
                                     "free some space on the data directory's disk and start billow again"});
  }
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    wake = queue_.empty();
    queue_.push_back(std::move(batch));
    ++batches_appended_;
  }
  if (wake) work_.notify_one();
  return last_appended_;
}

Status SqliteJournal::flush(Duration patience) {
  std::unique_lock lock(mutex_);
  const std::uint64_t wanted = batches_appended_;
  const auto done = [&] { return batches_committed_ >= wanted || health() == StoreHealth::fatal; };
  moved_.wait_for(lock, std::chrono::nanoseconds(patience.ns), done);
  if (batches_committed_ >= wanted) return {};
  if (health() == StoreHealth::ok) return fail(Code::timed_out, "the journal is not yet durable");
  return pass(why_);
}

std::vector<Batch> SqliteJournal::take_group() {
  std::unique_lock lock(mutex_);
  while (queue_.empty() && !stopping_) {
    if (work_.wait_for(lock, idle_after) == std::cv_status::timeout && queue_.empty() && !stopping_) {
      lock.unlock();
      quiet_moment();
      lock.lock();
    }
  }
  std::vector<Batch> group;
  std::size_t records = 0, taken = 0;
  while (taken < queue_.size() && (taken == 0 || records + queue_[taken].records.size() <= limits::journal_batch_events_max)) {
    records += queue_[taken++].records.size();
  }
  if (taken == queue_.size()) {
    group.swap(queue_);
  } else {
    const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(taken);
    group.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
    queue_.erase(queue_.begin(), end);
  }
  return group;
}

void SqliteJournal::write_loop() {
  while (true) {
    const std::vector<Batch> group = take_group();
    if (group.empty() || !commit_group(group)) return;
    std::size_t bytes = 0;
    Seq last = 0;
    for (const Batch& batch : group) {
      bytes += bytes_of(batch);
      if (!batch.records.empty()) last = batch.records.back().seq;
    }
    queued_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    std::shared_ptr<const JournalHooks> hooks;
    {
      std::lock_guard lock(mutex_);
      if (last != 0) durable_.store(last, std::memory_order_release);
      batches_committed_ += group.size();
      hooks = hooks_;
    }
    moved_.notify_all();
    if (last != 0 && hooks->on_durable) call(*hooks, [hooks, last] { hooks->on_durable(last); });
    if (parts_.db->wal_pages() >= checkpoint_pages_always || health() == StoreHealth::disk_low) quiet_moment();
  }
}

bool SqliteJournal::commit_group(const std::vector<Batch>& group) {
  while (health() != StoreHealth::fatal) {
    auto written = write_transaction(group);
    if (written) return true;
    parts_.db->rollback();
    if (written.error().code != Code::storage_full) {
      become(StoreHealth::fatal, std::move(written.error()).in("writing the journal"));
      return false;
    }
    if (parts_.ballast.held()) {
      parts_.ballast.release();
      become(StoreHealth::disk_low, written.error());
    } else if (!wait_for_room()) {
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
    return fail(Code::conflict, fmt::format("another head took over this data directory (epoch {}, ours is {})", epoch, parts_.epoch));
  }
  BILLOW_TRY_VOID(rows_.write(group));
  return parts_.db->run("COMMIT");
}

bool SqliteJournal::wait_for_room() {
  // A WAL that was copied into the database is written again from its start, which needs no new space.
  if (auto done = parts_.db->checkpoint(); !done && done.error().code != Code::storage_full) log_warn("checkpoint: {}", done.error().message);
  std::unique_lock lock(mutex_);
  return !work_.wait_for(lock, full_disk_retry, [&] { return stopping_; });
}

void SqliteJournal::quiet_moment() {
  if (health() == StoreHealth::disk_low && parts_.ballast.room_again() && parts_.ballast.make()) {
    log_info("there is room on the disk again");
    become(StoreHealth::ok, {});
  }
  if (parts_.db->wal_pages() < checkpoint_pages_when_idle) return;
  if (auto done = parts_.db->checkpoint(); !done) log_warn("checkpoint: {}", done.error().message);
  parts_.db->release_memory();
}

void SqliteJournal::become(StoreHealth health, Error why) {
  std::lock_guard one_at_a_time(health_mutex_);
  std::shared_ptr<const JournalHooks> hooks;
  {
    std::lock_guard lock(mutex_);
    if (health_ == health || health_ == StoreHealth::fatal) return;
    health_.store(health, std::memory_order_release);
    why_ = why;
    hooks = hooks_;
  }
  moved_.notify_all();
  if (health == StoreHealth::disk_low) log_warn("store: {}; new work is refused until there is room", why.message);
  if (health == StoreHealth::fatal) log_error("store: {}", why.message);
  if (hooks->on_health) call(*hooks, [hooks, health, why = std::move(why)] { hooks->on_health(health, why); });
}

Result<Seq> SqliteJournal::read(Seq after, std::size_t limit, const Visit& visit) const {
  Seq last = after;
  std::vector<Record> chunk;
  while (limit > 0) {
    chunk.clear();
    const std::size_t wanted = std::min(limit, read_chunk_records);
    {
      auto db = BILLOW_TRY(parts_.readers->take());
      auto q = BILLOW_TRY(db->query("SELECT seq, epoch, at, kind, payload FROM events WHERE seq > ? ORDER BY seq LIMIT ?"));
      q.bind_all(static_cast<std::int64_t>(last), static_cast<std::int64_t>(wanted));
      while (BILLOW_TRY(q.step())) {
        chunk.push_back({q.number(0), q.number(1), {q.integer(2)}, std::string(q.text(3)), std::string(q.text(4))});
      }
    }
    for (const Record& record : chunk) {
      last = record.seq;
      if (!visit(record)) return last;
    }
    if (chunk.size() < wanted) return last;
    limit -= wanted;
  }
  return last;
}

Status SqliteJournal::save_snapshot(Seq seq, std::string_view bytes) {
  if (bytes.size() > limits::snapshot_bytes_max) return fail(Code::too_large, "the snapshot is over its limit");
  {
    std::unique_lock lock(mutex_);
    moved_.wait(lock, [&] { return durable_ >= seq || health() != StoreHealth::ok || stopping_; });
    if (health() != StoreHealth::ok) return pass(why_, "no snapshot is saved now");
    if (durable_ < seq) return fail(Code::unavailable, "no snapshot is saved while the store closes");
  }
  return parts_.snapshots.save(seq, bytes);
}

Result<std::optional<Snapshot>> SqliteJournal::load_snapshot() const {
  auto snapshot = BILLOW_TRY(parts_.snapshots.load(durable_seq()));
  auto db = BILLOW_TRY(parts_.readers->take());
  const auto first = static_cast<Seq>(BILLOW_TRY(db->scalar("SELECT min(seq) FROM events", 1)));
  if (first > (snapshot ? snapshot->seq : 0) + 1) {
    return fail(Code::internal, fmt::format("the journal begins at {} and no usable snapshot reaches that far", first),
                "restore the data directory from a backup");
  }
  return snapshot;
}

Status SqliteJournal::prune(Seq before) {
  std::lock_guard one_at_a_time(prune_mutex_);
  const auto kept = parts_.snapshots.list();
  const Seq older = kept.size() < 2 ? 0 : kept[1];
  if (before > older + 1) {
    return fail(Code::conflict, fmt::format("records from {} on are still needed: the older of two snapshots is at {}", older + 1, older));
  }
  before = std::min(before, durable_seq());  // the last record stays: it says where the sequence goes on
  auto db = BILLOW_TRY(sqlite::Db::open(parts_.db->path(), sqlite::Mode::read_write, 256));
  while (true) {  // in small steps, so that commits get in between
    const auto first = BILLOW_TRY(db->scalar("SELECT min(seq) FROM events", 0));
    if (first == 0 || static_cast<Seq>(first) >= before) return {};
    const Seq end = std::min<Seq>(before, static_cast<Seq>(first) + prune_chunk_records);
    BILLOW_TRY_VOID(db->run("DELETE FROM events WHERE seq < ?", static_cast<std::int64_t>(end)));
  }
}

}  // namespace billow
