// The tables of a PostgreSQL store (schema `billow`): the same steps as in the data directory, and
// tables that only heads with a common database need: the leader's lease, the snapshots, and the
// shared secrets.
#pragma once

#include <optional>

#include "store/postgres/pg_db.h"

namespace billow::pg {

// Creates the schema and the lease if they are missing. Changes nothing else: another head may be
// leading.
Status prepare_lease(Db& db);
// Migrates the tables to a format (default: the current one). For the leading head; inside an open
// transaction, or each step in its own.
Status migrate(Db& db, std::int64_t up_to = 0);
// Stores a snapshot in moderately sized parts, inside the caller's transaction.
Status write_snapshot(Db& db, Seq seq, std::string_view bytes);
// The format, or 0 if there are no tables yet. Fails with `unsupported` if a newer Billow wrote
// them.
Result<std::int64_t> checked_format(Db& db);

// The right to lead, timed by PostgreSQL's clock. Its number (the epoch) is checked by every
// commit, so a leader that lost it without noticing (it slept, or was disconnected) cannot write.
inline constexpr Duration lease_life = seconds(5);
inline constexpr Duration lease_renewal = seconds(1);
struct Leader {
  Epoch epoch = 0;
  std::string holder;
};
Result<Leader> leader(Db& db);
// Takes the lease if it is free, has expired, or was held by the same identity. Returns the new
// epoch, or none.
Result<std::optional<Epoch>> take_lease(Db& db,
                                        const std::string& holder,
                                        const std::string& identity);
// Fails with Code::conflict if another head has taken it.
Status renew_lease(Db& db, Epoch epoch);
void give_up_lease(Db& db, Epoch epoch);

// "clock_timestamp() + …": the expiry of a lease taken now.
const std::string& lease_end_sql();

}  // namespace billow::pg
