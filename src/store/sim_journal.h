// The journal on a simulated disk, for the fault simulator and for tests of code that uses the
// journal. It keeps exactly the promises of journal.h: data reported durable survives a crash, the
// rest may survive as a prefix of batches. Single-threaded, no clock; all choices come from its
// Rng, so a seed repeats a run exactly.
//
// The writer works in steps that the simulator schedules: a commit, then its report. A crash may
// happen anywhere between them. Hooks are called (or posted) from within step().
#pragma once

#include <deque>
#include <map>

#include "base/rng.h"
#include "store/journal.h"

namespace billow {

// Survives a crash: the content of a data directory.
struct SimDisk {
  std::vector<Record> records;  // by seq
  std::map<JobId, JobRow> jobs;
  std::map<TaskId, TaskRow> tasks;
  std::map<LeaseId, LeaseRow> leases;
  std::vector<Snapshot> snapshots;  // newest last; at most two
  Epoch epoch = 0;
  Seq last_seq = 0;

  // Faults, set by the simulator at any time.
  bool full = false;  // no space but the ballast's
  // Space when full; restored when the disk is no longer full.
  std::size_t ballast_bytes = 64 << 10;
  bool broken = false;  // the next commit fails for good
  void damage_newest_snapshot() {
    if (!snapshots.empty())
      snapshots.pop_back();
  }  // a wrong checksum is skipped
};

class SimJournal final : public Journal {
 public:
  // Opens the disk: raises its epoch. A journal opened on it before is fenced from then on.
  SimJournal(SimDisk& disk, std::uint64_t seed);

  // One step of the writer: commits some of the queue, or reports the last commit, or notices that
  // there is space again. False: there was nothing to do, or nothing that could be done (full,
  // fatal).
  bool step();
  // The process ends here. The queue is lost, except for a random prefix. The journal takes no
  // further calls.
  void crash();

  void set_hooks(JournalHooks hooks) override;
  Seq append(Batch batch) override;
  Seq next_seq() const override { return last_appended_ + 1; }
  Seq durable_seq() const override { return durable_; }
  StoreHealth health() const override { return health_; }
  Epoch epoch() const override { return epoch_; }
  std::size_t queued_bytes() const override { return queued_bytes_; }
  Status flush(Duration patience) override;  // steps until all is durable or stuck
  Result<Seq> read(Seq after, std::size_t limit, const Visit& visit) const override;
  Status save_snapshot(Seq seq,
                       std::string_view bytes) override;  // refuses where the real one waits
  Result<std::optional<Snapshot>> load_snapshot() const override;
  Status prune(Seq before) override;
  Status retain(const Retention&, WallTime) override { return {}; }  // simulations call prune
  std::uint64_t records() const override { return disk_.records.size(); }

 private:
  void put(const Batch& batch);  // on the disk
  void become(StoreHealth health, Error why);
  void call(std::function<void()> callback);

  SimDisk& disk_;
  Rng rng_;
  Epoch epoch_;
  JournalHooks hooks_;
  std::deque<Batch> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t ballast_left_ = 0;  // while disk_low
  Seq last_appended_;
  Seq committed_;  // on the disk
  Seq durable_;    // and reported
  StoreHealth health_ = StoreHealth::ok;
  Error why_;
  bool crashed_ = false;
};

}  // namespace billow
