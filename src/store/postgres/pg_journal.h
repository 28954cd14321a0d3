// The journal in PostgreSQL. Each commit locks the leader's row first: whoever's epoch it is not
// writes nothing, and nobody takes over between that look and the commit. A quiet leader renews its
// lease every second.
//
// A server that goes away (a restart, a failover of its own) is waited for, and the same
// transaction is tried again on a new connection. Whether a commit whose answer was lost had
// happened is read from its number, which it leaves in the leader's row.
#pragma once

#include <mutex>

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
    Seq last_seq = 0;
    JournalHooks hooks;
  };
  static Result<std::unique_ptr<PgJournal>> create(Parts parts);
  ~PgJournal() override;

  Status save_snapshot(Seq seq, std::string_view bytes) override;
  Result<std::optional<Snapshot>> load_snapshot() const override;
  Status prune(Seq before) override;

 private:
  explicit PgJournal(Parts parts);
  bool commit_group(const std::vector<Batch>& group) override;
  void quiet_moment() override;
  bool persist(const std::function<Status()>& transaction);  // until it succeeds; false: fatal, or
                                                             // stopping while the server is away
  Status write_transaction(const std::vector<Batch>& group);

  Parts parts_;
  RowWriter rows_;
  std::int64_t commits_ = 0;  // of this epoch
  std::mutex prune_mutex_;
};

}  // namespace billow
