// The journal in SQLite. Its writer also checkpoints the WAL in quiet moments, so that a commit
// seldom waits for one, and handles a full disk:
//
//   ok        a commit finds no space: give up the ballast, go to disk_low, and retry the same
//             transaction until it fits
//   disk_low  there is space for the ballast and half again: allocate it, go to ok
//   fatal     after any other failure, or a higher epoch in the database: nothing is committed
#pragma once

#include "store/data_dir.h"
#include "store/queued_journal.h"
#include "store/row_writer.h"
#include "store/sqlite/sqlite_db.h"

namespace billow {

class SqliteJournal final : public QueuedJournal {
 public:
  struct Parts {
    std::unique_ptr<sqlite::Db> db;
    ReadPool* readers;
    Ballast ballast;
    Snapshots snapshots;
    Epoch epoch;
    JournalEnd last;
    JournalHooks hooks;
  };
  explicit SqliteJournal(Parts parts);
  ~SqliteJournal() override;

  Status save_snapshot(Seq seq, std::string_view bytes) override;
  Result<std::optional<Snapshot>> load_snapshot() const override;

 private:
  bool commit_group(
      const std::vector<Batch>& group) override;  // false: fatal, or stopping with a full disk
  void quiet_moment() override;
  void after_commit() override;
  Result<std::unique_ptr<sql::Db>> open_pruner() override;
  Result<bool> before_prune_step(sql::Db& db) override;
  Result<std::vector<Seq>> kept_snapshots() override;
  Result<bool> is_intact(Seq snapshot) override;
  Status write_transaction(const std::vector<Batch>& group);
  bool wait_for_space();  // false: stopping

  Parts parts_;
  RowWriter rows_;
};

}  // namespace billow
