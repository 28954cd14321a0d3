// The common part of all database journals: the loop thread appends to a queue under a short lock;
// one writer thread takes everything queued, lets the engine commit it in one transaction, advances
// durable_seq and reports it. Reading and waiting for durability are here too. An engine defines
// how to commit a group and what to do in quiet moments.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "store/journal.h"
#include "store/read_pool.h"
#include "store/sql.h"

namespace billow {

// The last record that is stored.
struct JournalEnd {
  Seq seq = 0;
  std::string link;
  Seq first = 1;  // of the complete records
};
Result<JournalEnd> journal_end(sql::Db& db);
// Follows the chain of all records; an error names the first one that was changed or is missing.
Result<ChainCheck> check_chain(sql::Db& db);

class QueuedJournal : public Journal {
 public:
  void set_hooks(JournalHooks hooks) override;
  Seq append(Batch batch) override;
  Seq next_seq() const override { return last_appended_ + 1; }
  Seq durable_seq() const override { return durable_.load(std::memory_order_acquire); }
  StoreHealth health() const override { return health_.load(std::memory_order_acquire); }
  Epoch epoch() const override { return epoch_; }
  std::size_t queued_bytes() const override {
    return queued_bytes_.load(std::memory_order_relaxed);
  }
  Status flush(Duration patience) override;
  Result<Seq> read(Seq after, std::size_t limit, const Visit& visit) const override;
  Status prune(Seq before) override;
  Status retain(const Retention& retention, WallTime now) override;
  std::uint64_t records() const override { return durable_seq() + 1 - first_.load(); }

 protected:
  struct Beginning {
    Epoch epoch;
    JournalEnd last;
    JournalHooks hooks;
    ReadPool* readers;
    std::chrono::milliseconds idle_after;  // a quiet moment: nothing queued for this long
  };
  explicit QueuedJournal(Beginning beginning);
  // An engine starts the writer at the end of its constructor and stops it first in its destructor.
  void start_writer();
  void stop_writer();

  // On the writer's thread. False: nothing more is committed (fatal, or stopping without being able
  // to write).
  virtual bool commit_group(const std::vector<Batch>& group) = 0;
  virtual void quiet_moment() = 0;
  virtual void after_commit() {}

  // For retention, one call at a time: a connection to remove records with; what is due before each
  // step (false or an error ends it); the seqs of the snapshots, newest first; and whether one is
  // undamaged.
  virtual Result<std::unique_ptr<sql::Db>> open_pruner() = 0;
  virtual Result<bool> before_prune_step(sql::Db& db) = 0;
  virtual Result<std::vector<Seq>> kept_snapshots() = 0;
  virtual Result<bool> is_intact(Seq snapshot) = 0;

  bool pause(std::chrono::milliseconds time);  // for the writer: false when stopping
  void become(StoreHealth health, Error why);
  // Waits until `seq` is durable, for data that must not be ahead of the journal.
  Status wait_until_durable(Seq seq);
  // Refuses a journal that begins after the end of the snapshot.
  Status check_beginning(const std::optional<Snapshot>& snapshot) const;
  ReadPool& readers() const { return *readers_; }

 private:
  void write_loop();
  std::vector<Batch> take_group();  // waits for work; empty: stopping
  Result<Seq> replay_begins();      // the first record that the older snapshot needs; 0: all
  Status remove_before(sql::Db& db, Seq before, std::uint64_t records_max);
  bool rest(std::chrono::nanoseconds time);  // between two steps: false when stopping

  const Epoch epoch_;
  ReadPool* const readers_;
  const std::chrono::milliseconds idle_after_;
  Seq last_appended_;
  std::string last_link_;
  std::atomic<Seq> durable_;
  std::atomic<Seq> first_;
  std::atomic<StoreHealth> health_{StoreHealth::ok};
  std::atomic<std::size_t> queued_bytes_{0};

  mutable std::mutex mutex_;
  std::condition_variable work_;   // wakes the writer: something queued, or stopping
  std::condition_variable moved_;  // wakes others: durable, health or stopping changed
  std::vector<Batch> queue_;
  std::uint64_t batches_appended_ = 0;
  std::uint64_t batches_committed_ = 0;
  bool stopping_ = false;
  Error why_;  // of the current health
  std::shared_ptr<const JournalHooks> hooks_;
  std::mutex health_mutex_;  // one change of health at a time
  std::mutex prune_mutex_;
  std::vector<Seq> intact_;  // snapshots that were checked, newest first; under prune_mutex_
  std::thread writer_;
};

}  // namespace billow
