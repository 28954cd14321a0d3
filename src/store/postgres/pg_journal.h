// The journal in PostgreSQL. Each commit locks the leader's row first: a head with another epoch
// writes nothing, and no head can take over between that check and the commit. An idle leader
// renews its lease every second.
//
// If the server goes away (a restart, a failover), the journal waits and retries the same
// transaction on a new connection. If the answer to a commit was lost, the commit number in the
// leader's row shows whether it happened.
#pragma once

#include "store/postgres/pg_db.h"
#include "store/queued_journal.h"
#include "store/row_writer.h"

namespace billow {

class PgJournal final : public QueuedJournal {
 public:
  struct Parts {
    std::unique_ptr<pg::Db> db;  // the writer's, which holds the lease
    ReadPool* readers = nullptr;
    Epoch epoch = 0;
    JournalEnd last;
    JournalHooks hooks;
  };
  static Result<std::unique_ptr<PgJournal>> create(Parts parts);
  ~PgJournal() override;

  Status save_snapshot(Seq seq, std::string_view bytes) override;
  Result<std::optional<Snapshot>> load_snapshot() const override;

 private:
  explicit PgJournal(Parts parts);
  bool commit_group(const std::vector<Batch>& group) override;
  void quiet_moment() override;
  Result<std::unique_ptr<sql::Db>> open_pruner() override;
  Result<bool> before_prune_step(sql::Db& db) override;
  Result<std::vector<Seq>> kept_snapshots() override;
  Result<bool> is_intact(Seq snapshot) override;
  bool persist(const std::function<Status()>& transaction);  // until it succeeds; false: fatal, or
                                                             // stopping while the server is away
  Status write_transaction(const std::vector<Batch>& group);

  Parts parts_;
  RowWriter rows_;
  std::int64_t commits_ = 0;  // of this epoch
};

}  // namespace billow
