// The rows of the query tables. They are projections: each is written in the transaction of the
// records that changed it, and could be rebuilt from the journal. The store knows the columns it
// indexes; `doc` is JSON that belongs to the head (view/stored.h writes and reads it).
//
// A row is an upsert: the whole row replaces the one with its id. Within one commit only the last
// row of an id is written, so a job that is queued, runs and ends between two fsyncs costs one row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/money.h"

namespace billow {

using Label = std::pair<std::string, std::string>;  // key, value

struct JobRow {
  JobId id;
  std::string name;
  UserId user;
  ProjectId project;
  std::string state;  // JobState by name; the store only compares it
  WallTime submitted_at;
  WallTime started_at;  // zero: not yet
  WallTime ended_at;    // zero: not yet; if set, the job counts as finished
  std::optional<std::int32_t> exit_code;
  JobId array;  // zero: not an element of an array
  std::uint64_t array_index = 0;
  std::vector<std::string> nodes;  // names of the nodes it runs or last ran on
  std::string gpu_type;
  std::uint32_t gpu_count = 0;
  std::int64_t gpu_milli = 0;  // of all its GPUs together; 1000 is one whole card
  NanoUsd charge;              // so far
  std::vector<Label> labels;   // keys are unique
  std::string doc;             // the head's record of the job (view/stored.h): JSON, opaque here
  std::string words = {};      // by which it is searched (store/job_words.h)

  bool operator==(const JobRow&) const = default;
};

struct TaskRow {
  TaskId id;
  JobId job;
  NodeId node;
  std::string node_name;
  std::string state;  // TaskState by name
  WallTime started_at;
  WallTime ended_at;  // zero: not yet
  std::optional<std::int32_t> exit_code;
  std::string doc;  // JSON, opaque here

  bool operator==(const TaskRow&) const = default;
};

// GPU shares that a task held from–to; the basis of billing. A running lease is written again at
// each meter mark, with a later `to` and new amounts; the difference from the previous row is added
// to the day of the new `to` (see Queries::usage), so a mark at midnight UTC makes the days exact.
// Amounts may shrink: a correction is a row with less.
struct LeaseRow {
  LeaseId id;
  JobId job;
  TaskId task;
  ProjectId project;
  UserId user;
  std::string node_name;
  std::string gpu_type;
  std::int64_t milli = 0;   // share of one card, ×1000
  std::string price_class;  // "on-demand", "spot", "reserved"
  WallTime from;
  WallTime to;       // metered up to here
  bool open = true;  // still held
  NanoUsd charge;    // what the project pays
  NanoUsd cost;      // what the hardware cost
  NanoUsd idle;      // the part of cost during which the job was idle
  std::int64_t energy_mj = 0;
  NanoUsd egress = {};  // the traffic's part of charge, and of cost
  std::int64_t egress_bytes = 0;
  // Measurements, for right-sizing.
  std::int32_t gpus = 0;
  std::int64_t card_mem_mib = 0, mem_peak_mib = 0;
  std::int32_t sm_peak_pct = 0, engine_p95_pct = 0;
  bool measured = false;
  std::string cards = {};  // which GPUs of the node, with their shares: "0:1000,1:1000"

  bool operator==(const LeaseRow&) const = default;
};

// One posting of the books. Never replaced: a correction is a separate row.
struct EntryRow {
  std::uint64_t number = 0;
  std::string kind;  // "active", "idle", "unallocated", "charge", "egress"
  NodeId node;
  LeaseId lease;  // zero: of a node only
  JobId job;
  ProjectId project;
  UserId user;
  WallTime from, to;
  NanoUsd amount;
  bool correction = false;
  bool operator==(const EntryRow&) const = default;
};

// The cost of a node on a day (UTC).
struct NodeDayRow {
  std::int64_t day = 0;
  std::string node_name;
  std::string pool;
  NanoUsd cost;
  std::string provider_id = {};  // the provider's id on a bill; may be empty
  bool operator==(const NodeDayRow&) const = default;
};

}  // namespace billow
