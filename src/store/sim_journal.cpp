#include "store/sim_journal.h"

#include <fmt/format.h>

#include "base/check.h"

namespace billow {
namespace {

std::size_t bytes_of(const Batch& batch) {
  std::size_t bytes = 64;
  for (const auto& r : batch.records)
    bytes += 64 + r.kind.size() + r.payload.size();
  for (const auto& j : batch.jobs)
    bytes += 128 + j.doc.size();
  for (const auto& t : batch.tasks)
    bytes += 128 + t.doc.size();
  return bytes + batch.leases.size() * 128;
}

}  // namespace

SimJournal::SimJournal(SimDisk& disk, std::uint64_t seed)
    : disk_(disk),
      rng_(seed),
      epoch_(++disk.epoch),
      last_appended_(disk.last_seq),
      committed_(disk.last_seq),
      durable_(disk.last_seq) {}

void SimJournal::set_hooks(JournalHooks hooks) {
  hooks_ = std::move(hooks);
  if (health_ != StoreHealth::ok && hooks_.on_health)
    call([this, health = health_, why = why_] { hooks_.on_health(health, why); });
}

Seq SimJournal::append(Batch batch) {
  BILLOW_CHECK(!crashed_, "a crashed journal takes no appends");
  for (Record& record : batch.records) {
    record.seq = ++last_appended_;
    record.epoch = epoch_;
  }
  queued_bytes_ += bytes_of(batch);
  queue_.push_back(std::move(batch));
  return last_appended_;
}

void SimJournal::put(const Batch& batch) {
  for (const Record& record : batch.records)
    disk_.records.push_back(record);
  if (!batch.records.empty())
    disk_.last_seq = committed_ = batch.records.back().seq;
  for (const JobRow& row : batch.jobs)
    disk_.jobs[row.id] = row;
  for (const TaskRow& row : batch.tasks)
    disk_.tasks[row.id] = row;
  for (const LeaseRow& row : batch.leases)
    disk_.leases[row.id] = row;
}

bool SimJournal::step() {
  if (crashed_ || health_ == StoreHealth::fatal)
    return false;
  if (durable_ < committed_) {  // report the finished commit
    durable_ = committed_;
    if (hooks_.on_durable)
      call([this, durable = durable_] { hooks_.on_durable(durable); });
    return true;
  }
  if (health_ == StoreHealth::disk_low && !disk_.full) {
    become(StoreHealth::ok, {});
    return true;
  }
  if (queue_.empty())
    return false;
  if (disk_.epoch != epoch_) {
    become(StoreHealth::fatal,
           Error{Code::conflict, "another head took over this data directory", ""});
    return true;
  }
  if (disk_.broken) {
    become(StoreHealth::fatal, Error{Code::internal, "the disk failed", ""});
    return true;
  }
  if (disk_.full && health_ == StoreHealth::ok) {
    ballast_left_ = disk_.ballast_bytes;
    become(StoreHealth::disk_low,
           Error{Code::storage_full, "no space left on the simulated disk", "free some space"});
    return true;
  }
  const std::size_t group = 1 + rng_.below(queue_.size());
  std::size_t done = 0;
  for (; done < group; ++done) {
    const std::size_t bytes = bytes_of(queue_.front());
    if (disk_.full && bytes > ballast_left_)
      break;  // stays queued until there is space
    if (disk_.full)
      ballast_left_ -= bytes;
    put(queue_.front());
    queued_bytes_ -= bytes;
    queue_.pop_front();
  }
  return done > 0;
}

void SimJournal::crash() {
  BILLOW_CHECK(!crashed_, "a journal crashes once");
  crashed_ = true;
  // A commit may have been under way: its batches are on the disk although they were not reported.
  // On a full disk or with a lost lock there was none.
  if (queue_.empty() || disk_.full || disk_.broken || disk_.epoch != epoch_ ||
      health_ == StoreHealth::fatal)
    return;
  std::size_t survivors = rng_.chance(0.5) ? rng_.below(queue_.size() + 1) : 0;
  for (; survivors > 0; --survivors) {
    put(queue_.front());
    queue_.pop_front();
  }
  queue_.clear();
}

Status SimJournal::flush(Duration) {
  while (step()) {}
  if (queue_.empty() && durable_ == committed_)
    return {};
  return pass(why_);
}

Result<Seq> SimJournal::read(Seq after, std::size_t limit, const Visit& visit) const {
  auto it = std::upper_bound(disk_.records.begin(), disk_.records.end(), after,
                             [](Seq seq, const Record& r) { return seq < r.seq; });
  Seq last = after;
  for (; it != disk_.records.end() && limit > 0; ++it, --limit) {
    last = it->seq;
    if (!visit(*it))
      break;
  }
  return last;
}

Status SimJournal::save_snapshot(Seq seq, std::string_view bytes) {
  if (health_ != StoreHealth::ok)
    return pass(why_, "no snapshot is saved now");
  if (disk_.full)
    return fail(Code::storage_full, "no space left on the simulated disk");
  if (seq > durable_)
    return fail(Code::unavailable, "the journal is not yet durable up to the snapshot");
  std::erase_if(disk_.snapshots, [&](const Snapshot& s) { return s.seq == seq; });
  disk_.snapshots.push_back({seq, std::string(bytes)});
  std::sort(disk_.snapshots.begin(), disk_.snapshots.end(),
            [](const Snapshot& a, const Snapshot& b) { return a.seq < b.seq; });
  if (disk_.snapshots.size() > 2)
    disk_.snapshots.erase(disk_.snapshots.begin());
  return {};
}

Result<std::optional<Snapshot>> SimJournal::load_snapshot() const {
  if (disk_.snapshots.empty())
    return std::optional<Snapshot>();
  return std::optional(disk_.snapshots.back());
}

Status SimJournal::prune(Seq before) {
  const Seq older = disk_.snapshots.size() < 2 ? 0 : disk_.snapshots.front().seq;
  if (before > older + 1)
    return fail(Code::conflict, fmt::format("records from {} on are still needed", older + 1));
  before = std::min(before, durable_);
  std::erase_if(disk_.records, [&](const Record& r) { return r.seq < before; });
  return {};
}

void SimJournal::become(StoreHealth health, Error why) {
  health_ = health;
  why_ = std::move(why);
  if (hooks_.on_health)
    call([this, health, why = why_] { hooks_.on_health(health, why); });
}

void SimJournal::call(std::function<void()> callback) {
  if (hooks_.post)
    hooks_.post(std::move(callback));
  else
    callback();
}

}  // namespace billow
