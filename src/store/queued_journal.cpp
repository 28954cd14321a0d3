#include "store/queued_journal.h"

#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "core/model/chain.h"

namespace billow {
namespace {

constexpr std::size_t read_chunk_records = 256;
// One statement, so that a record that moves to the audit trail meanwhile is seen once.
constexpr std::string_view records_after =
    "SELECT seq, epoch, at, kind, payload, link, link_before FROM kept_events WHERE seq > ?1 "
    "UNION ALL SELECT seq, epoch, at, kind, payload, link, "
    "(SELECT p.link FROM pruned p WHERE p.seq = events.seq - 1) FROM events WHERE seq > ?1 "
    "ORDER BY seq LIMIT ?2";
// Of a store that no head has opened since retention was added.
constexpr std::string_view records_after_before_format_10 =
    "SELECT seq, epoch, at, kind, payload, link, NULL FROM events WHERE seq > ? ORDER BY seq "
    "LIMIT ?";
// Records may be large and disks slow, so the time that a step takes decides how large the next is.
constexpr Seq prune_step_records_first = 64, prune_step_records_max = 1'000;
constexpr auto prune_step_long = std::chrono::milliseconds(100);
// In one call, so that it occupies a worker for a second or two only.
constexpr std::uint64_t retain_records_max = 150'000;
constexpr auto prune_rest_min = std::chrono::milliseconds(2);
constexpr int audit_steps_max = 150;

std::optional<std::string> text_or_none(const sql::Query& q, int column) {
  return q.is_null(column) ? std::nullopt : std::optional<std::string>(q.text(column));
}

std::size_t bytes_of(const Batch& batch) {
  std::size_t bytes = sizeof(Batch);
  for (const auto& r : batch.records)
    bytes += sizeof r + r.kind.size() + r.payload.size() + r.link.size();
  for (const auto& j : batch.jobs)
    bytes += sizeof j + j.doc.size();
  for (const auto& t : batch.tasks)
    bytes += sizeof t + t.doc.size();
  return bytes + batch.leases.size() * sizeof(LeaseRow);
}

void call(const JournalHooks& hooks, std::function<void()> callback) {
  if (hooks.post)
    hooks.post(std::move(callback));
  else
    callback();
}

}  // namespace

Result<JournalEnd> journal_end(sql::Db& db) {
  auto q = BILLOW_TRY(db.query("SELECT seq, link FROM events ORDER BY seq DESC LIMIT 1"));
  if (!BILLOW_TRY(q.step()))
    return JournalEnd{};
  return JournalEnd{q.number(0), std::string(q.text(1)), BILLOW_TRY(prune::first_record(db))};
}

Result<ChainCheck> check_chain(sql::Db& db) {
  ChainCheck check;
  const bool retains = BILLOW_TRY(db.scalar("SELECT value FROM meta WHERE key = 'format'")) >= 10;
  while (true) {
    const Seq before = check.last();
    auto q = BILLOW_TRY(db.query(retains ? records_after : records_after_before_format_10));
    q.bind_all(static_cast<std::int64_t>(before), static_cast<std::int64_t>(read_chunk_records));
    while (BILLOW_TRY(q.step())) {
      const std::string digest = sha256_hex(q.text(4));
      const LinkedFacts facts{q.number(0), q.number(1), {q.integer(2)}, q.text(3), digest};
      BILLOW_TRY_VOID(check.take(facts, q.text(5), text_or_none(q, 6)));
    }
    if (check.last() == before)
      return check;
  }
}

QueuedJournal::QueuedJournal(Beginning b)
    : epoch_(b.epoch),
      readers_(b.readers),
      idle_after_(b.idle_after),
      last_appended_(b.last.seq),
      last_link_(std::move(b.last.link)),
      durable_(b.last.seq),
      first_(b.last.first),
      hooks_(std::make_shared<const JournalHooks>(std::move(b.hooks))) {}

void QueuedJournal::start_writer() {
  writer_ = std::thread([this] { write_loop(); });
}

void QueuedJournal::stop_writer() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  moved_.notify_all();
  writer_.join();
}

bool QueuedJournal::pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !work_.wait_for(lock, time, [&] { return stopping_; });
}

void QueuedJournal::set_hooks(JournalHooks hooks) {
  std::lock_guard lock(health_mutex_);
  {
    std::lock_guard inner(mutex_);
    hooks_ = std::make_shared<const JournalHooks>(std::move(hooks));
  }
  if (health() != StoreHealth::ok) {  // a new listener must learn of it
    call(*hooks_, [hooks = hooks_, health = health(), why = why_] {
      if (hooks->on_health)
        hooks->on_health(health, why);
    });
  }
}

Seq QueuedJournal::append(Batch batch) {
  for (Record& record : batch.records) {
    record.seq = ++last_appended_;
    record.epoch = epoch_;
    const std::string digest = sha256_hex(record.payload);
    last_link_ = link_of(last_link_, linked_facts(record, digest));
    record.link = last_link_;
  }
  const std::size_t queued = queued_bytes_.fetch_add(bytes_of(batch), std::memory_order_relaxed);
  // A healthy disk catches up with any burst; a full one may stay full, so memory must be bounded.
  if (queued > limits::journal_queue_bytes_max && health() == StoreHealth::disk_low) {
    become(StoreHealth::fatal,
           Error{Code::exhausted,
                 fmt::format("the journal is {} MiB behind and cannot be written", queued >> 20),
                 "free some space on the store's disk and start billow again"});
  }
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    wake = queue_.empty();
    queue_.push_back(std::move(batch));
    ++batches_appended_;
  }
  if (wake)
    work_.notify_one();
  return last_appended_;
}

Status QueuedJournal::flush(Duration patience) {
  std::unique_lock lock(mutex_);
  const std::uint64_t wanted = batches_appended_;
  const auto done = [&] {
    return batches_committed_ >= wanted || health() == StoreHealth::fatal;
  };
  moved_.wait_for(lock, std::chrono::nanoseconds(patience.ns), done);
  if (batches_committed_ >= wanted)
    return {};
  if (health() == StoreHealth::ok)
    return fail(Code::timed_out, "the journal is not yet durable");
  return pass(why_);
}

std::vector<Batch> QueuedJournal::take_group() {
  std::unique_lock lock(mutex_);
  while (queue_.empty() && !stopping_) {
    if (work_.wait_for(lock, idle_after_) == std::cv_status::timeout && queue_.empty() &&
        !stopping_) {
      lock.unlock();
      quiet_moment();
      lock.lock();
    }
  }
  std::vector<Batch> group;
  std::size_t records = 0, taken = 0;
  while (taken < queue_.size() && (taken == 0 || records + queue_[taken].records.size() <=
                                                     limits::journal_batch_events_max)) {
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

void QueuedJournal::write_loop() {
  while (true) {
    const std::vector<Batch> group = take_group();
    if (group.empty() || !commit_group(group))
      return;
    std::size_t bytes = 0;
    Seq last = 0;
    for (const Batch& batch : group) {
      bytes += bytes_of(batch);
      if (!batch.records.empty())
        last = batch.records.back().seq;
    }
    queued_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    std::shared_ptr<const JournalHooks> hooks;
    {
      std::lock_guard lock(mutex_);
      if (last != 0)
        durable_.store(last, std::memory_order_release);
      batches_committed_ += group.size();
      hooks = hooks_;
    }
    moved_.notify_all();
    if (last != 0 && hooks->on_durable)
      call(*hooks, [hooks, last] { hooks->on_durable(last); });
    after_commit();
  }
}

void QueuedJournal::become(StoreHealth health, Error why) {
  std::lock_guard one_at_a_time(health_mutex_);
  std::shared_ptr<const JournalHooks> hooks;
  {
    std::lock_guard lock(mutex_);
    if (health_ == health || health_ == StoreHealth::fatal)
      return;
    health_.store(health, std::memory_order_release);
    why_ = why;
    hooks = hooks_;
  }
  moved_.notify_all();
  if (health == StoreHealth::disk_low)
    log_warn("store: {}; new jobs are refused until the disk has space", why.message);
  if (health == StoreHealth::fatal)
    log_error("store: {}", why.message);
  if (hooks->on_health)
    call(*hooks, [hooks, health, why = std::move(why)] { hooks->on_health(health, why); });
}

Result<Seq> QueuedJournal::read(Seq after, std::size_t limit, const Visit& visit) const {
  Seq last = after;
  std::vector<Record> chunk;
  while (limit > 0) {
    chunk.clear();
    const std::size_t wanted = std::min(limit, read_chunk_records);
    {
      auto db = BILLOW_TRY(readers_->take());
      auto q = BILLOW_TRY(db->query(records_after));
      q.bind_all(static_cast<std::int64_t>(last), static_cast<std::int64_t>(wanted));
      while (BILLOW_TRY(q.step())) {
        chunk.push_back({q.number(0),
                         q.number(1),
                         {q.integer(2)},
                         std::string(q.text(3)),
                         std::string(q.text(4)),
                         std::string(q.text(5)),
                         text_or_none(q, 6)});
      }
    }
    for (const Record& record : chunk) {
      last = record.seq;
      if (!visit(record))
        return last;
    }
    if (chunk.size() < wanted)
      return last;
    limit -= wanted;
  }
  return last;
}

Status QueuedJournal::wait_until_durable(Seq seq) {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [&] { return durable_ >= seq || health() != StoreHealth::ok || stopping_; });
  if (health() != StoreHealth::ok)
    return pass(why_, "no snapshot is saved now");
  if (durable_ < seq)
    return fail(Code::unavailable, "no snapshot is saved while the store closes");
  return {};
}

Status QueuedJournal::check_beginning(const std::optional<Snapshot>& snapshot) const {
  auto db = BILLOW_TRY(readers_->take());
  const Seq first = BILLOW_TRY(prune::first_record(*db));
  if (first <= (snapshot ? snapshot->seq : 0) + 1)
    return {};
  return fail(
      Code::internal,
      fmt::format("the journal begins at {} and no usable snapshot reaches that far", first),
      "restore the store from a backup");
}

Result<Seq> QueuedJournal::replay_begins() {
  std::vector<Seq> intact;
  for (const Seq seq : BILLOW_TRY(kept_snapshots())) {
    const bool known = std::find(intact_.begin(), intact_.end(), seq) != intact_.end();
    if (seq <= durable_seq() && (known || BILLOW_TRY(is_intact(seq))))
      intact.push_back(seq);
  }
  intact_ = std::move(intact);
  return intact_.size() < 2 ? 0 : intact_[1] + 1;
}

bool QueuedJournal::rest(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  return !moved_.wait_for(lock, time, [&] { return stopping_; });
}

// Each step holds the database's lock for some milliseconds and rests as long, so that commits in
// between need not queue up.
Status QueuedJournal::remove_before(sql::Db& db, Seq before, std::uint64_t records_max) {
  Seq first = BILLOW_TRY(prune::first_record(db));
  // The last record stays: it defines the next number.
  const Seq end = std::min({before, durable_seq(), first + records_max});
  Seq records = prune_step_records_first;
  while (first < end) {
    if (!BILLOW_TRY(before_prune_step(db)))
      return {};
    const auto began = std::chrono::steady_clock::now();
    const Seq to = std::min(end, first + records);
    BILLOW_TRY_VOID(prune::remove_range(db, first, to));
    first = to;
    first_ = to;
    const auto took = std::chrono::steady_clock::now() - began;
    records = took > prune_step_long ? std::max<Seq>(1, records / 4)
                                     : std::min(prune_step_records_max, records * 2);
    if (!rest(std::max<std::chrono::nanoseconds>(took, prune_rest_min)))
      return {};
  }
  return {};
}

Status QueuedJournal::prune(Seq before) {
  std::lock_guard one_at_a_time(prune_mutex_);
  const Seq needed = BILLOW_TRY(replay_begins());
  if (before > std::max<Seq>(needed, 1)) {
    return fail(
        Code::conflict,
        fmt::format("records from {} on are still needed: the older of two snapshots is at {}",
                    std::max<Seq>(needed, 1), needed == 0 ? 0 : needed - 1));
  }
  const auto db = BILLOW_TRY(open_pruner());
  return remove_before(*db, before, before);
}

Status QueuedJournal::retain(const Retention& given, WallTime now) {
  std::lock_guard one_at_a_time(prune_mutex_);
  if (health() != StoreHealth::ok)
    return {};  // a full disk has more urgent work
  const auto db = BILLOW_TRY(open_pruner());
  if (!BILLOW_TRY(before_prune_step(*db)))
    return {};
  const Retention retention = BILLOW_TRY(prune::settle(*db, given));
  Seq before = 0;
  if (retention.events)
    before = BILLOW_TRY(prune::first_since(*db, now - *retention.events));
  if (retention.events_max && durable_seq() > *retention.events_max)
    before = std::max(before, durable_seq() + 1 - *retention.events_max);
  // Snapshots are read to check them, so only if there is something to remove.
  if (before > BILLOW_TRY(prune::first_record(*db)))
    BILLOW_TRY_VOID(
        remove_before(*db, std::min(before, BILLOW_TRY(replay_begins())), retain_records_max));
  if (!retention.audit)
    return {};
  for (int steps = 0; steps < audit_steps_max; ++steps)
    if (!BILLOW_TRY(prune::remove_audit_before(*db, now - *retention.audit)) ||
        !rest(prune_rest_min))
      return {};
  return {};
}

}  // namespace billow
