// Starting programs. This is the only place of Billow that forks and executes (except
// billow-supervise, which starts jobs without any library; both share become_linux.h).
//
// Guarantees for every child: it inherits no descriptor beyond those named here; no signal is
// blocked or ignored; a child with an identity has exactly that user and its groups and can gain no
// privileges; a step that fails before the program runs is an error of spawn(), with its reason,
// and never a program that runs with more than was asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"

namespace billow::process {

struct Identity {
  std::uint32_t uid = 0, gid = 0;
  std::vector<std::uint32_t> groups;
};

// Standard streams: a descriptor of ours, or one of these.
inline constexpr int null_device = -1;
inline constexpr int inherited = -2;

struct GivenFd {
  int fd = -1;  // ours
  int as = -1;  // its number in the child
};

// The namespaces of a running process, entered before the child becomes its user. Namespaces that
// are the same as ours are skipped.
struct NamespacesOf {
  int pid = 0;  // 0: stay in ours
  bool mount = true;
  bool network = true;
};

enum class Group {
  ours,     // a signal to our process group reaches the child
  own,      // the child leads a process group
  session,  // the child leads a session, without a terminal
};

enum class Signals {
  reset,         // every signal has its default action
  keep_ignored,  // signals that are ignored stay so, except SIGPIPE: for commands people start
};

struct Spawn {
  std::vector<std::string> argv;  // argv[0] without '/' is searched along our PATH
  std::string program;            // the file to execute; empty: argv[0]
  // Runs in place of a program; its result is the exit code. In a process with threads it may use
  // system calls only. Our descriptors stay open in it.
  std::function<int()> body;
  std::optional<std::vector<std::string>> env;  // NAME=value; none: ours
  std::string cwd;                              // empty: ours
  bool cwd_or_root = false;                     // start in / if cwd cannot be entered
  std::optional<Identity> identity;             // none: ours; with one, no_new_privs is set
  bool low_ports = false;                       // of root's right, the identity keeps ports < 1024
  std::vector<std::string> cgroups;             // directories, of v1 and v2, that the child enters
  NamespacesOf namespaces;
  int in = null_device, out = null_device, err = null_device;
  std::vector<GivenFd> fds;  // beyond the standard streams
  int terminal = -1;         // becomes the controlling terminal and all standard streams
  Group group = Group::own;
  Signals signals = Signals::reset;
  int on_parent_death = 0;  // signal the child gets when the thread that started it ends
  bool no_new_privs = false;
  // System calls that are refused to it: CallRules of call_filter_linux.h, as bits. Sets
  // no_new_privs.
  std::uint32_t refused_calls = 0;
  // All descendants are killed when the child ends or its deadline passes, also those that left its
  // process group or session. Our descriptors and a small process are kept for it meanwhile.
  bool whole_tree = false;
  bool detached = false;         // nobody's child: it cannot be waited for, and lives on
  std::uint64_t open_files = 0;  // soft limit of descriptors; 0: ours
  SteadyTime deadline;           // Child::wait() kills the child then; 0: none
};

struct Ended {
  int status = 0;      // as waitpid() gives it
  bool late = false;   // killed at the deadline
  bool ok() const;     // ended by itself, with code 0
  int code() const;    // exit code; 128 + signal if a signal ended it
  int signal() const;  // 0: none
};

// A running child. One that goes out of scope is killed and reaped; release() lets it live.
class Child {
 public:
  Child() = default;
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;
  ~Child();

  int pid() const { return pid_; }  // 0: detached, or already ended
  // Not blocking. Empty while it runs.
  std::optional<Ended> poll();
  // Blocks until it ends. At the deadline it is killed; a process that hangs in the kernel is given
  // up 10 seconds later.
  Ended wait();
  // Sends a signal to the child, and to its process group if it leads one.
  void signal(int number) const;
  // Kills the child and its process group, or its whole tree.
  void end() const;
  Ended end_and_wait();
  void set_deadline(SteadyTime deadline) { deadline_ = deadline; }
  int release();

 private:
  friend Result<Child> spawn(const Spawn& request);
  int pid_ = 0;
  bool leads_group_ = false, whole_tree_ = false;
  SteadyTime deadline_;
};

Result<Child> spawn(const Spawn& request);
// Becomes the program: returns only with the reason why not. Uses argv, env, cwd, fds and signals.
Status replace_this_program(const Spawn& request);

// Our environment, with `changes` in place.
std::vector<std::string> our_environment(const std::vector<std::string>& changes = {});

struct Pipe {
  Fd read, write;
  static Result<Pipe> create();
};

}  // namespace billow::process
