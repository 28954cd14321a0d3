// The agent protocol, version 1: what the head and the one agent of a node say to each other over
// one WebSocket that the agent dials. A frame is `u32 length of the JSON (little endian) | JSON
// {"type": …, …} | blob`; only log and terminal data use the blob. Order is kept within a
// connection. Everything is idempotent: `start` by task id, reports by their sequence number, which
// the head acknowledges; what was not acknowledged is sent again after a reconnect.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/model/job.h"
#include "core/model/money.h"
#include "core/model/node.h"
#include "core/model/one_of.h"
#include "core/wire/gpu_reading.h"

namespace billow::wire::agent_v1 {

inline constexpr int protocol_version = 1;  // the newest this binary speaks
inline constexpr int protocol_version_min =
    1;  // and the oldest; both sides use the newest they share
// What a message that names no version means, permanently: members equal to their default are not
// written, so a default that rose with the program would make its newest version look like whatever
// the other side speaks.
inline constexpr int protocol_version_unsaid = 1;

// ---- agent → head
// -------------------------------------------------------------------------------------------------

using billow::TaskStatus;

// The first frame of a connection. The head answers with Welcome, or Refused and a close.
struct Hello {
  static constexpr const char* kind = "hello";
  int version = protocol_version_unsaid;
  int version_min = 0;   // 0: speaks `version` only
  Epoch epoch_seen = 0;  // the highest epoch a head has shown this agent
  SteadyTime sent_at;    // by the node's clock: heads of 0.1 know a late hello by it
  NodeOffer offer;
  std::vector<TaskStatus> tasks;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("version", s.version);
    v("version_min", s.version_min);
    v("epoch_seen", s.epoch_seen);
    v("sent_at_ns", s.sent_at);
    v("offer", s.offer);
    v("tasks", s.tasks);
  }
};

// A change of one task. Numbers rise by one within a life of the agent's data directory.
struct Report {
  static constexpr const char* kind = "report";
  std::uint64_t number = 0;
  TaskStatus status;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("status", s.status);
  }
};

// What a task's processes use, as rates since the reading before; -1: unknown.
struct TaskReading {
  TaskId task;
  std::int64_t cpu_milli = -1;
  std::int64_t mem_mib = -1;
  std::int64_t read_kib_s = -1, write_kib_s = -1;  // through system calls: files, pipes and sockets
  std::int64_t quiet_s = -1;                       // without work, by the node's idle verdict
  std::string idle_text;  // once its idle ladder has warned: the reason and the countdown as of now
  std::string asleep_text;  // of a suspended task: where its GPU memory is, and what resuming costs
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("read_kib_s", s.read_kib_s);
    v("write_kib_s", s.write_kib_s);
    v("quiet_s", s.quiet_s);
    v("idle_text", s.idle_text);
    v("asleep_text", s.asleep_text);
  }
};
// Every limits::agent_heartbeat; carries the newest readings, which are samples and never
// journalled.
struct Heartbeat {
  static constexpr const char* kind = "heartbeat";
  std::vector<GpuReading> gpus;
  std::int64_t cpu_used_milli = 0;
  std::int64_t mem_used_mib = 0;
  std::int64_t net_rx_kib_s = -1, net_tx_kib_s = -1, disk_read_kib_s = -1,
               disk_write_kib_s = -1;  // of the node; -1: unknown
  std::vector<TaskReading> tasks;
  std::int64_t images_bytes = -1;      // on the disk, of all users' container images; -1: unknown
  std::int64_t images_bytes_max = -1;  // of each user; 0: no limit
  std::string driver;                  // version of the GPUs' driver
  std::int64_t disk_free_mib = -1;     // where jobs work; -1: unknown
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("gpus", s.gpus);
    v("cpu_used_milli", s.cpu_used_milli);
    v("mem_used_mib", s.mem_used_mib);
    v("net_rx_kib_s", s.net_rx_kib_s);
    v("net_tx_kib_s", s.net_tx_kib_s);
    v("disk_read_kib_s", s.disk_read_kib_s);
    v("disk_write_kib_s", s.disk_write_kib_s);
    v("tasks", s.tasks);
    v("images_bytes", s.images_bytes);
    v("images_bytes_max", s.images_bytes_max);
    v("driver", s.driver);
    v("disk_free_mib", s.disk_free_mib);
  }
};

// What has been used up to now, cumulative per task: the ledger takes differences, so a lost mark
// loses nothing.
struct MeterMark {
  static constexpr const char* kind = "meter_mark";
  std::vector<TaskMark> marks;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("marks", s.marks);
  }
};

// What a task's idle ladder has come to, said when it changes and again from time to time.
struct IdleNote {
  static constexpr const char* kind = "idle_note";
  TaskId task;
  IdleState state = IdleState::idle;
  IdleAction action = IdleAction::warn;
  std::string text;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("state", s.state);
    v("action", s.action);
    v("text", s.text);
  }
};

// Asked for inside the job; in force already, here to be recorded.
struct KeepAliveAsked {
  static constexpr const char* kind = "keep_alive_asked";
  TaskId task;
  Duration lasts;
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("lasts_ns", s.lasts);
    v("reason", s.reason);
  }
};

// Log records [offset, next_offset) in the blob, framed as the supervisor wrote them. `lost_bytes`
// were rotated away before.
struct LogChunk {
  static constexpr const char* kind = "log_chunk";
  std::uint64_t subscription = 0;
  std::uint64_t offset = 0;
  std::uint64_t next_offset = 0;
  std::uint64_t lost_bytes = 0;
  bool end =
      false;  // the task has ended and this was the last of its log (or the read did not follow)
  std::string error;  // no such task, unreadable
  // The answer to a query (LogRead::query): the frames are lines as JSON objects, joined by commas.
  bool answered = false;
  bool more = false;             // ask again from next_offset: a part of the work is done
  std::uint64_t line = 0;        // the number of the line at next_offset
  std::uint64_t first_line = 0;  // the oldest that is kept
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("subscription", s.subscription);
    v("offset", s.offset);
    v("next_offset", s.next_offset);
    v("lost_bytes", s.lost_bytes);
    v("end", s.end);
    v("error", s.error);
    v("answered", s.answered);
    v("more", s.more);
    v("line", s.line);
    v("first_line", s.first_line);
  }
};

// How far a task's input has come, in bytes since it started: what the job has consumed (the head
// sends only so much ahead of it), what its supervisor has accepted (that much survives the agent),
// and what has been received here. `refused`: something came that does not follow on what was
// received; the sender continues from `received`.
struct InputTaken {
  static constexpr const char* kind = "input_taken";
  TaskId task;
  std::uint64_t bytes = 0;
  std::uint64_t accepted = 0;
  std::uint64_t received = 0;
  bool refused = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("bytes", s.bytes);
    v("accepted", s.accepted);
    v("received", s.received);
    v("refused", s.refused);
  }
};

// The node is about to be taken away: its engine said so (a signal in an allocation, a notice in a
// cloud's metadata). The head sends what runs here back into the queue.
struct Reclaimed {
  static constexpr const char* kind = "reclaimed";
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("reason", s.reason);
  }
};

// ---- head → agent
// -------------------------------------------------------------------------------------------------

struct Welcome {
  static constexpr const char* kind = "welcome";
  Epoch epoch = 0;
  NodeId node;
  std::int64_t heartbeat_ms = 0;
  int version = protocol_version_unsaid;  // of the protocol, as both speak from now on
  std::string head_version;
  bool bills = false;  // every hour of this node is billed: it must not outlive its use
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("node", s.node);
    v("heartbeat_ms", s.heartbeat_ms);
    v("version", s.version);
    v("head_version", s.head_version);
    v("bills", s.bills);
  }
};
struct Refused {
  static constexpr const char* kind = "refused";
  std::string message;
  std::string hint;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("message", s.message);
    v("hint", s.hint);
  }
};

struct Start : TaskOptions {
  using FieldsBase = TaskOptions;
  static constexpr const char* kind = "start";
  Epoch epoch = 0;
  TaskId task;
  JobId job;
  std::uint32_t rank = 0;
  Environment
      env;  // complete, with Billow's own variables but for the devices', which the agent adds
  std::string unix_user;  // whom it runs as; empty: as the agent itself
  std::string owner;      // the Billow user whose job it is; empty: a head of version 0.1
  std::vector<GpuGrant> gpus;
  std::int64_t cpu_milli = 0;  // 0: no limit
  std::int64_t mem_mib = 0;
  Duration stop_grace;
  Duration paid_for;         // from receipt; 0: without limit
  bool gang = false;         // `billow ranks` starts its processes, as for procs > 1
  bool fenced = false;       // must end when the head has been away for limits::agent_self_fence
  bool suspendable = false;  // to be prepared for being suspended fast
  IdleRules idle;
  std::string environment_path;  // where the environment of `surroundings` is mounted
  std::vector<BoundVolume> volumes;
  std::vector<GivenSecret> secrets;
  bool bare = false;  // has the node to itself: no sandbox, no shim, no limits; the node is looked
                      // over afterwards
  std::uint16_t port = 0;     // of a replica: the agent says who has it
  std::int64_t disk_mib = 0;  // of the node's disk; 0: as the node's policy says
  GivenLogin registry_login;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("task", s.task);
    v("job", s.job);
    v("rank", s.rank);
    TaskOptions::fields(s, v);
    v("env", s.env);
    v("unix_user", s.unix_user);
    v("owner", s.owner);
    v("gpus", s.gpus);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("stop_grace_ns", s.stop_grace);
    v("paid_for_ns", s.paid_for);
    v("gang", s.gang);
    v("fenced", s.fenced);
    v("suspendable", s.suspendable);
    v("idle", s.idle);
    v("bare", s.bare);
    v("port", s.port);
    v("environment_path", s.environment_path);
    v("volumes", s.volumes);
    v("secrets", s.secrets);
    v("disk_mib", s.disk_mib);
    v("registry_login", s.registry_login);
  }
};
struct Stop {
  static constexpr const char* kind = "stop";
  Epoch epoch = 0;
  TaskId task;
  Duration grace;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("task", s.task);
    v("grace_ns", s.grace);
  }
};
// Orders to one task are numbered upwards: one that is not newer than the last taken up was sent
// before and is only reported again.
struct Suspend {
  static constexpr const char* kind = "suspend";
  Epoch epoch = 0;
  TaskId task;
  std::uint32_t order = 0;
  SuspendMode mode = SuspendMode::warm;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("task", s.task);
    v("order", s.order);
    v("mode", s.mode);
  }
};
struct Resume {
  static constexpr const char* kind = "resume";
  Epoch epoch = 0;
  TaskId task;
  std::uint32_t order = 0;
  std::vector<GpuGrant> gpus;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("task", s.task);
    v("order", s.order);
    v("gpus", s.gpus);
  }
};
struct Signal {
  static constexpr const char* kind = "signal";
  TaskId task;
  std::int32_t number = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("number", s.number);
  }
};
// Bytes for the task's standard input or terminal, in the blob. One without bytes or end asks how
// far the input has come.
struct Input {
  static constexpr const char* kind = "input";
  TaskId task;
  bool eof = false;
  std::int64_t offset = -1;  // of the first byte in all input; what is known already is left out.
                             // -1: after whatever came before
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("eof", s.eof);
    v("offset", s.offset);
  }
};
struct Resize {
  static constexpr const char* kind = "resize";
  TaskId task;
  std::uint16_t rows = 0, cols = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("rows", s.rows);
    v("cols", s.cols);
  }
};
struct LeaseRenew {
  static constexpr const char* kind = "lease_renew";
  Epoch epoch = 0;
  std::vector<TaskId> tasks;
  Duration paid_for;  // from receipt
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("tasks", s.tasks);
    v("paid_for_ns", s.paid_for);
  }
};
// Reports up to and including this number are durable at the head.
struct Ack {
  static constexpr const char* kind = "ack";
  std::uint64_t number = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
  }
};
// The head has the ends of these tasks, or never knew them: an ended one's directory may go after
// its retention, a live one nobody knows is stopped.
struct Settle {
  static constexpr const char* kind = "settle";
  Epoch epoch = 0;
  std::vector<TaskId> ended;
  std::vector<TaskId> unknown;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("ended", s.ended);
    v("unknown", s.unknown);
  }
};
// Asks for one LogChunk. With `follow`, the answer waits until there is something to say: more log,
// or its end. The next chunk is asked for when the last has been passed on, so a slow reader delays
// only itself.
struct LogRead {
  static constexpr const char* kind = "log_read";
  std::uint64_t subscription = 0;
  TaskId task;
  std::uint64_t offset = 0;
  std::int64_t tail_bytes =
      -1;  // ≥ 0: begin about this many bytes before the end instead of at offset
  bool follow = false;
  // Asks for lines instead of frames (core/wire/log_query.h): "range", "search"; empty: frames.
  std::string query;
  std::uint64_t from_line = 0;   // of a range; 0: from the line at `offset`
  std::uint64_t tail_lines = 0;  // of a range: so many at the end
  std::uint32_t lines_max = 0;
  std::string text;  // of a search
  bool regex = false, any_case = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("subscription", s.subscription);
    v("task", s.task);
    v("offset", s.offset);
    v("tail_bytes", s.tail_bytes);
    v("follow", s.follow);
    v("query", s.query);
    v("from_line", s.from_line);
    v("tail_lines", s.tail_lines);
    v("lines_max", s.lines_max);
    v("text", s.text);
    v("regex", s.regex);
    v("any_case", s.any_case);
  }
};
struct LogCancel {
  static constexpr const char* kind = "log_cancel";
  std::uint64_t subscription = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("subscription", s.subscription);
  }
};
// The agent ends itself (jobs go on under their supervisors).
struct Leave {
  static constexpr const char* kind = "leave";
  bool stop_tasks = false;
  bool give_back = false;  // and the machine with it: it belongs to a pool that bills
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("stop_tasks", s.stop_tasks);
    v("give_back", s.give_back);
  }
};
// The rules of a live task changed, or the agent may not know them after a restart.
struct SetIdleRules {
  static constexpr const char* kind = "set_idle_rules";
  Epoch epoch = 0;
  TaskId task;
  IdleRules rules;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("task", s.task);
    v("rules", s.rules);
  }
};
// A user asked to exempt this task from the idle rules for a while.
struct KeepTask {
  static constexpr const char* kind = "keep_task";
  Epoch epoch = 0;
  TaskId task;
  Duration lasts;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("epoch", s.epoch);
    v("task", s.task);
    v("lasts_ns", s.lasts);
  }
};

// Somebody doubts who has a replica's port: look now. The task's next report has the number. Only
// to agents that have said who has it.
struct LookAtPort {
  static constexpr const char* kind = "look_at_port";
  TaskId task;
  std::uint64_t number = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("task", s.task);
    v("number", s.number);
  }
};

struct FromAgentKinds : Kinds<Hello,
                              Report,
                              Heartbeat,
                              MeterMark,
                              LogChunk,
                              InputTaken,
                              Reclaimed,
                              IdleNote,
                              KeepAliveAsked> {};
using FromAgent = OneOf<FromAgentKinds>;
struct ToAgentKinds : Kinds<Welcome,
                            Refused,
                            Start,
                            Stop,
                            Suspend,
                            Resume,
                            Signal,
                            Input,
                            Resize,
                            LeaseRenew,
                            Ack,
                            Settle,
                            LogRead,
                            LogCancel,
                            Leave,
                            SetIdleRules,
                            KeepTask,
                            LookAtPort> {};
using ToAgent = OneOf<ToAgentKinds>;

template <class M>
struct Frame {
  M message;
  std::string blob;
};
std::string encode(const FromAgent& message, std::string_view blob = {});
std::string encode(const ToAgent& message, std::string_view blob = {});
Result<Frame<FromAgent>> decode_from_agent(std::string_view frame);
Result<Frame<ToAgent>> decode_to_agent(std::string_view frame);

}  // namespace billow::wire::agent_v1
