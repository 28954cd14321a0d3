// The tables of a PostgreSQL store (schema `billow`): those of the data directory's format, step by
// step the same, and what only heads that share a database need: the lease by which one of them
// leads, the snapshots, and the secrets they have in common.
#pragma once

#include <optional>

#include "store/postgres/pg_db.h"

namespace billow::pg {

// Makes the schema and the lease where there are none yet. Changes nothing else: another head may
// be leading.
Status prepare_lease(Db& db);
// Brings the tables to a format, the present one unless told. For the head that leads; inside a
// transaction that is open, or each step in its own.
Status migrate(Db& db, std::int64_t up_to = 0);
// Keeps a snapshot, in parts of a size a connection takes with ease; inside the caller's
// transaction.
Status write_snapshot(Db& db, Seq seq, std::string_view bytes);
// The format, 0 where there are no tables yet. Fails with `unsupported` where a newer Billow wrote
// them.
Result<std::int64_t> checked_format(Db& db);

// The right to lead, by PostgreSQL's own clock. It has a number (the epoch) that every commit
// checks, so a leader that lost it without noticing (it slept, or was cut off) cannot write.
inline constexpr Duration lease_life = seconds(5);
inline constexpr Duration lease_renewal = seconds(1);
struct Leader {
  Epoch epoch = 0;
  std::string holder;
};
Result<Leader> leader(Db& db);
// Takes the lease if it is free, has run out, or was held by this very identity: the new epoch, or
// none.
Result<std::optional<Epoch>> take_lease(Db& db,
                                        const std::string& holder,
                                        const std::string& identity);
// Fails with Code::conflict where somebody else has taken it.
Status renew_lease(Db& db, Epoch epoch);
void give_up_lease(Db& db, Epoch epoch);

// "clock_timestamp() + …": when a lease taken now runs out.
const std::string& lease_end_sql();

}  // namespace billow::pg
