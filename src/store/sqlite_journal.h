// The journal's writer. The loop thread appends to a queue under a short lock; one writer thread takes all that is queued,
// commits it in one transaction, moves durable_seq and tells. It also does the WAL's checkpoints in quiet moments, so that a
// commit seldom waits for one, and carries the store through a full disk:
//
//   ok ──commit finds no room──► give up the ballast, disk_low ──retry the same transaction until it fits──► commit
//   disk_low ──room for the ballast and half again──► allocate it, ok
//   any other failure, or a higher epoch in the database ──► fatal: nothing is committed from there on
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "store/data_dir.h"
#include "store/journal.h"
#include "store/read_pool.h"
#include "store/row_writer.h"
#include "store/sqlite_db.h"

namespace billow {

class SqliteJournal final : public Journal {
 public:
  struct Parts {
    std::unique_ptr<sqlite::Db> db;
    ReadPool* readers;
    Ballast ballast;
    Snapshots snapshots;
    Epoch epoch;
    Seq last_seq;
    JournalHooks hooks;
  };
  explicit SqliteJournal(Parts parts);
  ~SqliteJournal() override;

  void set_hooks(JournalHooks hooks) override;
  Seq append(Batch batch) override;
  Seq next_seq() const override { return last_appended_ + 1; }
  Seq durable_seq() const override { return durable_.load(std::memory_order_acquire); }
  StoreHealth health() const override { return health_.load(std::memory_order_acquire); }
  Epoch epoch() const override { return parts_.epoch; }
  std::size_t queued_bytes() const override { return queued_bytes_.load(std::memory_order_relaxed); }
  Status flush(Duration patience) override;
  Result<Seq> read(Seq after, std::size_t limit, const Visit& visit) const override;
  Status save_snapshot(Seq seq, std::string_view bytes) override;
  Result<std::optional<Snapshot>> load_snapshot() const override;
  Status prune(Seq before) override;

 private:
  void write_loop();
  std::vector<Batch> take_group();                  // waits for work; empty: stopping
  bool commit_group(const std::vector<Batch>& group);  // false: fatal, or stopping with a full disk
  Status write_transaction(const std::vector<Batch>& group);
  bool wait_for_room();                             // false: stopping
  void quiet_moment();
  void become(StoreHealth health, Error why);

  Parts parts_;
  RowWriter rows_;
  Seq last_appended_;
  std::atomic<Seq> durable_;
  std::atomic<StoreHealth> health_{StoreHealth::ok};
  std::atomic<std::size_t> queued_bytes_{0};

  mutable std::mutex mutex_;
  std::condition_variable work_;   // the writer waits: something queued, or stopping
  std::condition_variable moved_;  // others wait: durable, health or stopping changed
  std::vector<Batch> queue_;
  std::uint64_t batches_appended_ = 0;
  std::uint64_t batches_committed_ = 0;
  bool stopping_ = false;
  Error why_;                      // of the present health
  std::shared_ptr<const JournalHooks> hooks_;
  std::mutex health_mutex_;        // one change of health at a time
  std::mutex prune_mutex_;
  std::thread writer_;
};

}  // namespace billow
