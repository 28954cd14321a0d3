// The journal holds the facts: every event of the core, in one sequence without gaps, durable
// before anything it causes leaves. The head appends on its loop thread and continues at once; a
// writer commits everything queued since the last commit in one transaction with one fsync, and
// reports how far the journal is durable. Replies wait for that.
//
// Invariants:
// - A record's seq is one more than the previous one, from 1, across restarts.
// - A batch commits whole: its records and the rows they changed, or none of them. Batches commit
//   in the order of append.
// - Whatever was reported durable survives kill -9 and a power cut. The rest may survive, but only
//   as a prefix of batches.
// - A full disk loses nothing that was appended: the writer keeps the transaction and retries it
//   until there is space.
// - Each opening of a data directory has a higher epoch than all before it, and a head of a lower
//   epoch cannot commit.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/model/chain.h"
#include "store/retention.h"
#include "store/rows.h"

namespace billow {

struct Record {
  Seq seq = 0;      // set by append
  Epoch epoch = 0;  // set by append
  WallTime at;
  std::string kind;     // the event's name
  std::string payload;  // the event: JSON
  std::string link;     // set by append: see core/model/chain.h; empty in records of older programs
  // Only in records read from a journal that no longer has the record before: its link.
  std::optional<std::string> link_before;

  bool operator==(const Record&) const = default;
};

inline LinkedFacts linked_facts(const Record& record, std::string_view payload_sha256) {
  return {record.seq, record.epoch, record.at, record.kind, payload_sha256};
}

// Commits together.
struct Batch {
  std::vector<Record> records;
  std::vector<JobRow> jobs;
  std::vector<TaskRow> tasks;
  std::vector<LeaseRow> leases;
  std::vector<EntryRow> entries;
  std::vector<NodeDayRow> node_days;
};

enum class StoreHealth {
  ok,
  disk_low,  // the disk is full: the ballast was given up so that running jobs
             // continue; refuse new jobs until `ok`
  fatal,     // the journal cannot be written (or another head took over); nothing
             // appended from here on becomes durable: stop
};
const char* store_health_name(StoreHealth health);

struct Snapshot {
  Seq seq = 0;        // the state after this record
  std::string bytes;  // the state: opaque here
};

// Runs a function where the callbacks belong: the head passes its loop's post. Empty: on the
// writer's thread.
using Post = std::function<void(std::function<void()>)>;

struct JournalHooks {
  Post post;
  std::function<void(Seq durable)> on_durable;  // after each commit, ascending
  std::function<void(StoreHealth health, const Error& why)>
      on_health;  // on each change; `why` is empty for ok
};

class Journal {
 public:
  virtual ~Journal() = default;

  // Sets the callbacks, replacing earlier ones. Call before the first append.
  virtual void set_hooks(JournalHooks hooks) = 0;

  // Queues a batch and returns the seq of its last record (for a batch of rows alone, of the last
  // one queued before it). Sets seq, epoch and link of each record. Never blocks on the disk, never
  // refuses. One thread at a time.
  virtual Seq append(Batch batch) = 0;
  // The seq that the next appended record gets. Same thread as append.
  virtual Seq next_seq() const = 0;

  // Any thread.
  virtual Seq durable_seq() const = 0;
  virtual StoreHealth health() const = 0;
  virtual Epoch epoch() const = 0;
  // Appended but not yet durable: a head may shed load by this.
  virtual std::size_t queued_bytes() const = 0;

  // Blocks until everything appended before is durable, or the store is fatal. While the disk is
  // full it returns storage_full after `patience`. For shutdown and tests; not for the loop thread.
  virtual Status flush(Duration patience) = 0;

  // Visits records after a seq, ascending, at most `limit`, until `visit` returns false. Returns
  // the seq of the last one visited (or `after`). Sees durable records only. Any thread; holds no
  // lock and no long read transaction during visits.
  using Visit = std::function<bool(const Record&)>;
  virtual Result<Seq> read(Seq after, std::size_t limit, const Visit& visit) const = 0;

  // Stores the state after `seq`; the last two are kept, checksummed. Waits until `seq` is durable:
  // a snapshot ahead of the journal would contain what never happened. For a worker thread.
  virtual Status save_snapshot(Seq seq, std::string_view bytes) = 0;
  // The newest intact snapshot that is not ahead of the journal; none: replay from seq 0.
  virtual Result<std::optional<Snapshot>> load_snapshot() const = 0;

  // Removes records with seq < before, except what retention.h keeps of them. Refused beyond the
  // older of two intact snapshots, because replay could then not make up for a damaged newest one.
  // For a worker thread; in small steps, so that commits hardly wait.
  virtual Status prune(Seq before) = 0;
  // Removes what is older than the retention allows and replay does not need, at most a bounded
  // number of records in one call: to be called regularly, on a worker thread.
  virtual Status retain(const Retention& retention, WallTime now) = 0;
  // How many complete records there are, audit trail aside. Any thread.
  virtual std::uint64_t records() const = 0;
};

}  // namespace billow
