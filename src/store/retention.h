// How long the journal keeps what replay no longer needs. Replay needs the records after the older
// of two intact snapshots; these always stay. Of the others,
// - routine records (the life of jobs, tasks and machines, which query tables describe too) go when
//   they are too old or too many;
// - all other records are the audit trail: who changed what, and who was refused. They move to a
//   table of their own (`kept_events`), where only their age counts, so that a flood of jobs cannot
//   push them out;
// - the variables of ended jobs move to `kept_variables`, one row per digest, for `billow rerun`.
// The link of the last record that went stays (`pruned`), so that the chain of the rest can still
// be checked.
//
// Everything happens in small transactions. A crash between two of them leaves a journal that is
// shorter than before and otherwise the same; the next call continues.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "store/sql.h"

namespace billow {

struct Retention {
  // Nothing: no limit. By default only a number limits: a clock that is wrong must remove nothing.
  std::optional<Duration> events;
  std::optional<std::uint64_t> events_max = 5'000'000;
  std::optional<Duration> audit;
  bool chosen = false;  // by an operator: it is stored for heads that are started without options
};

namespace prune {

// What is in force: the operator's choice, which is stored, or the choice that was stored last.
Result<Retention> settle(sql::Db& db, const Retention& retention);
// The first record that is still complete, or 0 for an empty journal.
Result<Seq> first_record(sql::Db& db);
// The first complete record that is not older than `time`; one after the last if all are.
Result<Seq> first_since(sql::Db& db, WallTime time);
// One transaction: removes records from `first` to before `end`, and keeps of them what outlives
// them.
Status remove_range(sql::Db& db, Seq first, Seq end);
// One statement: removes some records of the audit trail older than `time`; false: none was left.
Result<bool> remove_audit_before(sql::Db& db, WallTime time);

}  // namespace prune
}  // namespace billow
