// What an agent without root asks the root helper of its node, and what the helper answers
// (docs/adr/0029). One request is one message of a Unix socket of the kind SOCK_SEQPACKET, and so
// is one answer: a message is never cut, joined or larger than its limit. What may be large or
// secret travels beside it, as descriptors of sealed memory (content.h).
//
// A request names a task and values, never a path, and an identity only as a number: what the
// helper makes it names itself, and who a number is it looks up itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/file.h"
#include "base/result.h"

namespace billow::privileged {

inline constexpr std::uint32_t protocol_version = 1;
inline constexpr char usual_socket[] = "/run/billow-privileged/socket";
// The largest request names a task, some numbers and a secret.
inline constexpr std::size_t message_bytes_max = 16 << 10;
inline constexpr std::size_t descriptors_max = 4;
// Of an order or the secrets of a job; the supervisor takes a spec of 2 MiB.
inline constexpr std::size_t content_bytes_max = 4 << 20;
inline constexpr std::size_t secret_name_bytes_max = 200;

enum class Verb {
  hello,        // who the helper is and where its tasks are
  prepare,      // makes control groups and directories for a task of a user
  secret,       // writes a secret of a prepared task as a file: content
  start,        // starts a prepared task: order, variables, texts that the log must not show
  connect,      // a connection to the supervisor of a task
  record,       // records how a task ended that never began: exit record
  acknowledge,  // the head knows how the task ended
  end,          // kills what an ended task left in its control groups
  clear,        // removes the control groups and directories of an ended task
  forget,       // removes the directory of an ended task, with its log
  signal,       // sends a signal to a process of a task
  take,         // for the processes that systemd starts for the helper: their descriptors
};

struct Request {
  std::uint32_t version = protocol_version;
  Verb verb = Verb::hello;
  std::uint64_t task = 0;
  std::uint32_t uid = 0;  // prepare
  bool work = false;      // prepare: it needs a working directory
  std::int64_t cpu_milli = 0, mem_mib = 0, pids_max = 0;
  std::string name;         // secret
  std::int32_t pid = 0;     // signal
  std::int32_t number = 0;  // signal
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("version", s.version);
    v("verb", s.verb);
    v("task", s.task);
    v("uid", s.uid);
    v("work", s.work);
    v("cpu_milli", s.cpu_milli);
    v("mem_mib", s.mem_mib);
    v("pids_max", s.pids_max);
    v("name", s.name);
    v("pid", s.pid);
    v("number", s.number);
  }
};

// Empty code: it is done.
struct Reply {
  std::string code, error, hint;
  // hello
  std::string tasks;           // the directory of the task directories
  std::string groups_owner;    // part of the names of its control groups
  std::string seen_processes;  // why jobs see processes of others; empty: they do not
  bool private_tmp = false;    // jobs get a /tmp of their own
  bool private_dev = false;
  // prepare
  std::string tmp;     // the job's /tmp; empty: the node's
  std::string work;    // its working directory, if it needs one
  std::string memory;  // where its secrets are
  // secret: the file; take: the task directory
  std::string path;
  bool secrets = false, redacted = false;  // take: whether their descriptors are there
  std::uint32_t signalled = 0;             // end, signal: processes reached
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("code", s.code);
    v("error", s.error);
    v("hint", s.hint);
    v("tasks", s.tasks);
    v("groups_owner", s.groups_owner);
    v("seen_processes", s.seen_processes);
    v("private_tmp", s.private_tmp);
    v("private_dev", s.private_dev);
    v("tmp", s.tmp);
    v("work", s.work);
    v("memory", s.memory);
    v("path", s.path);
    v("secrets", s.secrets);
    v("redacted", s.redacted);
    v("signalled", s.signalled);
  }
};

// What a job may be started with. What is not here the helper decides by itself: the identity from
// the number that was prepared, control groups, private /tmp and /proc, the rights it gives up.
struct Order {
  std::vector<std::string> argv, env;  // "NAME=value"
  std::string cwd = "/";
  std::uint32_t umask = 022;
  bool terminal = false;
  std::uint16_t rows = 24, columns = 80;
  bool one_stream = false, stdin_open = false;
  std::uint64_t log_segment_bytes = 0;
  std::uint32_t log_segments_max = 0;
  Duration time_limit;
  SteadyTime paid_until;
  Duration stop_grace, leftover_grace;
  std::vector<std::string> hide_devices;  // relative to /dev
  std::vector<std::string> shown;         // directories below /tmp that stay visible
  std::uint32_t refused_calls = 0;        // in addition to those that the helper always refuses
  std::string meta;                       // the agent's own notes
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("argv", s.argv);
    v("env", s.env);
    v("cwd", s.cwd);
    v("umask", s.umask);
    v("terminal", s.terminal);
    v("rows", s.rows);
    v("columns", s.columns);
    v("one_stream", s.one_stream);
    v("stdin_open", s.stdin_open);
    v("log_segment_bytes", s.log_segment_bytes);
    v("log_segments_max", s.log_segments_max);
    v("time_limit_ns", s.time_limit);
    v("paid_until_ns", s.paid_until);
    v("stop_grace_ns", s.stop_grace);
    v("leftover_grace_ns", s.leftover_grace);
    v("hide_devices", s.hide_devices);
    v("shown", s.shown);
    v("refused_calls", s.refused_calls);
    v("meta", s.meta);
  }
};

// Strict: a member that no field is named after is an error, and so is a value that the verb cannot
// mean (a negative limit, a secret whose name is a path, a task without a number).
Result<Request> read_request(std::string_view text);
Result<Order> read_order(std::string_view text);
Reply refusal(const Error& error);
// The error of a reply; a success is none.
Status status_of(const Reply& reply);

struct Message {
  std::string text;
  std::vector<Fd> descriptors;
};
// Code::unavailable: the other side has closed. Code::too_large: its message is larger than it may
// be, or has more descriptors.
Result<Message> receive(int socket);
Status send(int socket, std::string_view text, const std::vector<int>& descriptors = {});

}  // namespace billow::privileged
namespace billow {
BILLOW_ENUM_NAMES(privileged::Verb,
                  {privileged::Verb::hello, "hello"},
                  {privileged::Verb::prepare, "prepare"},
                  {privileged::Verb::secret, "secret"},
                  {privileged::Verb::start, "start"},
                  {privileged::Verb::connect, "connect"},
                  {privileged::Verb::record, "record"},
                  {privileged::Verb::acknowledge, "acknowledge"},
                  {privileged::Verb::end, "end"},
                  {privileged::Verb::clear, "clear"},
                  {privileged::Verb::forget, "forget"},
                  {privileged::Verb::signal, "signal"},
                  {privileged::Verb::take, "take"});
}  // namespace billow
