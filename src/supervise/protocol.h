// All formats that the agent and a supervisor share: the files of a task directory, the task's
// spec, the framing of the log, the control frames and the exit record.
//
// A supervisor may be older than the agent that adopts it (jobs outlive an upgrade), so these
// formats only ever grow: new tags, new frame types, new fields at the end. A reader skips what it
// does not know. All numbers are little-endian, which both supported machines are; structs are laid
// out without padding surprises and checked below.
//
// Task directory (mode 0700; the agent creates it with mkdir, whose EEXIST guarantees that no task
// runs twice):
//   spec           what to run; written before the supervisor starts
//   lock           locked (flock) from before the supervisor starts until it ends; contains its pid
//                  once the job may have run
//   ctl.sock       where a restarted agent connects; created when the first connection is lost
//   out.log        the current segment of the log, from the first output on; out.<base>.log are
//                  older segments
//   exit           how the task ended; appears by rename, before the end is reported
// A file is created only when it is needed: on a disk, creating files is the most expensive part of
// a start.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/wire/log_record.h"

namespace billow::supervise {

static_assert(std::endian::native == std::endian::little, "the formats below are little-endian");

inline constexpr char file_spec[] = "spec";
inline constexpr char file_lock[] = "lock";
inline constexpr char file_ctl[] = "ctl.sock";
inline constexpr char file_log[] = "out.log";
inline constexpr char file_exit[] = "exit";
inline constexpr char file_exit_part[] =
    "exit.part";  // created at the start, so that a full disk cannot lose the exit

// The descriptors a supervisor starts with; all others are closed.
inline constexpr int fd_ctl = 3;   // one end of a socketpair; may be absent
inline constexpr int fd_lock = 4;  // the locked `lock` file
// 5 and 6: secrets.h
inline constexpr int fd_network = 7;       // the job's network namespace; may be absent
inline constexpr int fd_network_life = 8;  // kept open: closes with the supervisor; may be absent

inline constexpr std::uint32_t protocol_version = 1;

// ---- spec
// -------------------------------------------------------------------------------------------------
// SpecHeader, then entries {SpecEntry, bytes}. Strings carry their terminating NUL, so that the
// supervisor uses them in place.
inline constexpr std::uint32_t spec_magic = 0x53574c42;  // "BLWS"
inline constexpr std::size_t spec_bytes_max = 2u << 20;

struct SpecHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t bytes;  // of the whole file
  std::uint32_t reserved;
};
struct SpecEntry {
  std::uint16_t tag;
  std::uint16_t reserved;
  std::uint32_t bytes;  // that follow this entry head
};

enum class SpecTag : std::uint16_t {
  argv = 1,                 // string, repeated, in order; at least one
  env = 2,                  // string "NAME=value", repeated; the job's whole environment
  cwd = 3,                  // string, absolute
  uid = 4,                  // u32; absent: our own user
  gid = 5,                  // u32
  groups = 6,               // u32[]
  umask = 7,                // u32
  pty = 8,                  // u16 rows, u16 columns; absent: pipes
  stdin_open = 9,           // no bytes; absent: /dev/null
  log_segment_bytes = 10,   // u64
  log_segments_max = 11,    // u32
  time_limit_ns = 12,       // i64, from the job's start
  paid_until_boot_ns = 13,  // i64, CLOCK_BOOTTIME
  stop_grace_ns = 14,       // i64
  leftover_grace_ns = 15,   // i64: grace after SIGTERM for what the main process left behind
  cgroup_v2 = 16,           // string: directory the job starts in
  cgroup_v1 = 17,           // string, repeated: directory the job enters before it drops privileges
  cgroup_memory = 18,       // string: directory with the OOM counter: this job's or its container's
  cgroup_freezer_v1 = 19,   // string: directory with freezer.state
  hide_device = 20,         // string relative to /dev, repeated: not in the job's private /dev
  user_namespace = 21,      // no bytes: make the mount namespace inside a user namespace
  rlimit = 22,              // u32 resource, u32 zero, u64 soft, u64 hard; repeated
  nice = 23,                // i32
  die_with_pid = 24,        // i32: stop when this process ends
  subscription = 25,        // u32 Subscription of the first connection
  no_new_privs = 26,        // no bytes
  oom_score_adj = 27,       // i32 for the job
  bind = 29,  // string "ro\nSOURCE\nPLACE" or "rw\n…", repeated: a directory mounted in the job's
              // own namespace
  refused_calls = 30,  // u32: CallRules of process/call_filter_linux.h, as bits
  one_stream = 31,     // no bytes: stdout and stderr are one pipe, in the order written
  own_network = 32,    // no bytes: the job's network namespace comes as fd_network
  private_tmp = 33,    // string: directory that is the job's /tmp; its /dev/shm is private, too
  shown = 34,  // string, repeated: directory that is visible although it is below /tmp or /dev/shm
  private_proc = 35,  // no bytes: /proc shows the processes only that the job may look into
  meta = 28,          // bytes: the agent's own notes; the supervisor ignores them
};

// ---- log
// -------------------------------------------------------------------------------------------------
// A segment is a SegmentHeader and then whole records. The logical offset counts record bytes
// (heads included) since the job began; a segment's first record is at logical offset `base`.
inline constexpr char segment_magic[8] = {'B', 'L', 'W', 'L', 'O', 'G', '1', '\n'};

struct SegmentHeader {
  char magic[8];
  std::uint64_t base;
};
using Stream = wire::LogStream;
using wire::record_data_bytes_max;
using wire::record_notice;
using wire::record_unlogged;
using wire::RecordHead;

// ---- control frames
// -------------------------------------------------------------------------------------------------
struct FrameHead {
  std::uint32_t bytes;  // of payload
  std::uint16_t type;   // FrameType
  std::uint16_t reserved;
};
inline constexpr std::uint32_t frame_payload_bytes_max = record_data_bytes_max + 64;
inline constexpr std::uint32_t stdin_window_bytes =
    256u << 10;  // an agent never has more than this unacknowledged
inline constexpr std::uint32_t replay_bytes_max = 64u << 10;
inline constexpr int connections_max = 8;

enum class FrameType : std::uint16_t {
  // to the supervisor
  stdin_data = 1,    // StdinHead + bytes
  stdin_eof = 2,     // StdinHead
  resize = 3,        // ResizeFrame
  signal = 4,        // SignalFrame
  stop = 5,          // StopFrame
  set_deadline = 6,  // DeadlineFrame
  freeze = 7,
  thaw = 8,
  status_request = 9,
  subscribe = 10,  // SubscribeFrame
  // from the supervisor
  status = 100,        // StatusFrame: on connect, on request, and when the state changes
  output = 102,        // OutputHead + bytes
  log_advanced = 103,  // LogAdvancedFrame: coalesced
  stdin_ack = 104,     // StdinAckFrame
  exited = 105,        // ExitRecord
  replay = 106,        // bytes: the last output of a terminal
};

inline constexpr std::uint64_t stdin_append = UINT64_MAX;  // after all earlier input: a keyboard

struct StdinHead {
  std::uint64_t
      offset;  // of the first byte in the whole input; what was accepted before is skipped
};
struct ResizeFrame {
  std::uint16_t rows, columns;
};
enum class SignalScope : std::uint32_t { group = 0, tree = 1, main_only = 2 };
struct SignalFrame {
  std::int32_t number;
  std::uint32_t scope;
};
struct StopFrame {
  std::int64_t grace_ns;  // negative: as the spec says
  std::uint32_t reason;   // the agent's own code; comes back in the exit record
  std::uint32_t reserved;
};
enum class DeadlineKind : std::uint32_t { time_limit = 1, paid_until = 2 };
struct DeadlineFrame {
  std::uint32_t kind;
  std::uint32_t reserved;
  std::int64_t boot_ns;  // CLOCK_BOOTTIME; 0: none
};
enum class Subscription : std::uint32_t {
  none = 0,
  notify = 1,  // log_advanced
  live = 2,    // output
};
inline constexpr std::uint32_t subscribe_replay = 1;
struct SubscribeFrame {
  std::uint32_t subscription;
  std::uint32_t flags;  // subscribe_replay
};

enum class SupervisorState : std::uint32_t {
  starting = 1,
  running = 2,
  frozen = 3,
  stopping = 4,
  ended = 5
};
struct StatusFrame {
  std::uint32_t version;
  std::uint32_t state;
  std::int32_t supervisor_pid;
  std::int32_t job_pid;
  std::int64_t started_wall_ns;
  std::int64_t started_boot_ns;
  std::uint64_t log_end;
  std::uint64_t log_dropped_bytes;
  std::uint64_t stdin_accepted;
  std::int64_t time_deadline_boot_ns;
  std::int64_t paid_until_boot_ns;
};
struct OutputHead {
  std::uint64_t offset;  // logical offset of this record's head; with record_unlogged: where it
                         // would have been
  RecordHead record;
};
struct LogAdvancedFrame {
  std::uint64_t log_end;
};
struct StdinAckFrame {
  std::uint64_t accepted;  // bytes taken from the agent
  std::uint64_t consumed;  // bytes the job (its pipe or terminal) took
};

// ---- exit
// -------------------------------------------------------------------------------------------------
inline constexpr std::uint32_t exit_magic = 0x58574c42;  // "BLWX"

enum class ExitKind : std::uint32_t {
  exited = 1,       // code
  signaled = 2,     // signal
  not_started = 3,  // code 126 or 127, detail says why
};
enum class EndCause : std::uint32_t {
  itself = 0,
  stop_request = 1,
  time_limit = 2,
  paid_until = 3,
  parent_ended = 4,       // the process named by die_with_pid
  supervisor_signal = 5,  // someone sent SIGTERM to the supervisor
};
inline constexpr std::uint32_t exit_oom = 1;
inline constexpr std::uint32_t exit_core_dumped = 2;
inline constexpr std::uint32_t exit_leftovers = 4;  // processes we may not kill were left behind
inline constexpr std::uint32_t exit_escalated = 8;  // SIGKILL was needed

struct ExitRecord {
  std::uint32_t magic;
  std::uint32_t bytes;  // of this record, by its writer
  std::uint32_t kind;
  std::int32_t code;
  std::int32_t signal;
  std::uint32_t cause;
  std::uint32_t stop_reason;
  std::uint32_t flags;  // exit_*
  std::int64_t started_wall_ns, started_boot_ns;
  std::int64_t ended_wall_ns, ended_boot_ns;
  std::int64_t user_us, system_us;
  std::int64_t rss_max_kib;
  std::uint64_t log_end;
  std::uint64_t log_dropped_bytes;
  std::uint64_t oom_kills;
  char detail[256];  // NUL-terminated
};

static_assert(sizeof(SpecHeader) == 16 && sizeof(SpecEntry) == 8 && sizeof(SegmentHeader) == 16);
static_assert(sizeof(RecordHead) == 16 && sizeof(FrameHead) == 8 && sizeof(OutputHead) == 24);
static_assert(sizeof(StatusFrame) == 72 && sizeof(ExitRecord) == 368);

}  // namespace billow::supervise
