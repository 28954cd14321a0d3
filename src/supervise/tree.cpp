#include "supervise/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <initializer_list>

#include "supervise/sys.h"

namespace billow::supervise {
namespace {

// On a machine with more processes a walk finds only some of them; it is repeated until no
// descendant is left.
constexpr std::size_t processes_max = 128u << 10;
struct Process {
  pid_t pid;
  pid_t parent;  // 0 once known to be a descendant
};
Process table[processes_max];  // uses no memory until the first walk

struct DirEntry64 {
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short bytes;
  unsigned char type;
  char name[];
};

pid_t parse_pid(const char* s) {
  long n = 0;
  for (; *s >= '0' && *s <= '9'; ++s)
    n = n * 10 + (*s - '0');
  return *s == 0 || *s == '\n' || *s == ' ' ? static_cast<pid_t>(n) : 0;
}

// The parent, from /proc/PID/stat, whose second field may hold any character: the fields begin
// after the last ')'.
pid_t parent_of(const char* pid_text) {
  Text<64> path;
  path << "/proc/" << pid_text << "/stat";
  char buffer[512];
  if (read_small(path.data, buffer, sizeof(buffer)) <= 0)
    return 0;
  const char* after = strrchr(buffer, ')');
  if (after == nullptr || strlen(after) < 5)
    return 0;
  return parse_pid(after + 4);  // ") S 123"
}

std::size_t read_processes() {
  const int dir = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0)
    return 0;
  static char buffer[32u << 10];
  std::size_t count = 0;
  for (;;) {
    const long n = syscall(SYS_getdents64, dir, buffer, sizeof(buffer));
    if (n <= 0)
      break;
    for (long at = 0; at < n && count < processes_max;) {
      const auto* entry = reinterpret_cast<const DirEntry64*>(buffer + at);
      at += entry->bytes;
      if (entry->name[0] < '1' || entry->name[0] > '9')
        continue;
      const pid_t parent = parent_of(entry->name);
      if (parent > 0)
        table[count++] = {parse_pid(entry->name), parent};
    }
  }
  close(dir);
  return count;
}

// Moves the descendants of `root` to the front of the table and returns their number.
std::size_t descendants(pid_t root) {
  const std::size_t count = read_processes();
  std::size_t found = 0;
  auto take_children_of = [&](pid_t parent) {
    for (std::size_t i = found; i < count; ++i) {
      if (table[i].parent != parent)
        continue;
      const Process child = table[i];
      table[i] = table[found];
      table[found++] = child;
    }
  };
  take_children_of(root);
  for (std::size_t next = 0; next < found; ++next)
    take_children_of(table[next].pid);
  return found;
}

struct Count {
  std::size_t reached = 0, refused = 0;
};
void signal_one(pid_t pid, int number, Count* count) {
  if (pid <= 1 || pid == getpid())
    return;
  if (kill(pid, number) == 0)
    ++count->reached;
  else if (errno == EPERM)
    ++count->refused;
}

// Signals the processes of a cgroup. False if their list cannot be read.
bool signal_cgroup(const char* directory, int number, Count* count) {
  Text<512> path;
  path << directory << "/cgroup.procs";
  const int fd = open(path.data, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  char buffer[4096];
  long pid = 0;
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof(buffer));
    if (n <= 0)
      break;
    for (ssize_t i = 0; i < n; ++i) {
      if (buffer[i] >= '0' && buffer[i] <= '9') {
        pid = pid * 10 + (buffer[i] - '0');
      } else if (pid > 0) {
        signal_one(static_cast<pid_t>(pid), number, count);
        pid = 0;
      }
    }
  }
  close(fd);
  return true;
}

}  // namespace

std::size_t Tree::signal(int number, std::size_t* refused) const {
  Count count;
  const std::size_t found = descendants(getpid());
  for (std::size_t i = 0; i < found; ++i)
    signal_one(table[i].pid, number, &count);
  if (refused != nullptr)
    *refused = count.refused;
  return count.reached;
}

void Tree::freeze() const {
  Text<512> path;
  if (spec_.cgroup_v2 != nullptr) {
    path << spec_.cgroup_v2 << "/cgroup.freeze";
    if (write_small(path.data, "1") == 0)
      return;
  }
  if (spec_.cgroup_freezer_v1 != nullptr) {
    Text<512> state;
    state << spec_.cgroup_freezer_v1 << "/freezer.state";
    if (write_small(state.data, "FROZEN") == 0)
      return;
  }
  // A process may fork during the walk: repeat until a walk finds no new one, for a bounded number
  // of rounds.
  std::size_t before = 0;
  for (int round = 0; round < 8; ++round) {
    const std::size_t reached = signal(SIGSTOP);
    if (reached == before)
      break;
    before = reached;
  }
}

void Tree::thaw() const {
  if (spec_.cgroup_v2 != nullptr) {
    Text<512> path;
    path << spec_.cgroup_v2 << "/cgroup.freeze";
    if (write_small(path.data, "0") == 0)
      return;
  }
  if (spec_.cgroup_freezer_v1 != nullptr) {
    Text<512> state;
    state << spec_.cgroup_freezer_v1 << "/freezer.state";
    if (write_small(state.data, "THAWED") == 0)
      return;
  }
  signal(SIGCONT);
}

std::size_t Tree::kill_all(std::size_t* refused) const {
  Count count;
  if (spec_.cgroup_v2 != nullptr) {
    Text<512> path;
    path << spec_.cgroup_v2 << "/cgroup.kill";
    if (write_small(path.data, "1") != 0)
      signal_cgroup(spec_.cgroup_v2, SIGKILL, &count);
  } else if (spec_.cgroups_v1_count > 0) {
    signal_cgroup(spec_.cgroups_v1[0], SIGKILL, &count);
  }
  // Also descendants: a process may have moved itself to another cgroup.
  return count.reached + signal(SIGKILL, refused);
}

unsigned long Tree::oom_kills() const {
  if (spec_.cgroup_memory == nullptr)
    return 0;
  for (const char* file : {"/memory.events", "/memory.oom_control"}) {
    Text<512> path;
    path << spec_.cgroup_memory << file;
    char buffer[1024];
    if (read_small(path.data, buffer, sizeof(buffer)) <= 0)
      continue;
    const char* line = strstr(buffer, "oom_kill ");
    if (line == nullptr)
      continue;
    unsigned long n = 0;
    for (line += 9; *line >= '0' && *line <= '9'; ++line)
      n = n * 10 + static_cast<unsigned long>(*line - '0');
    return n;
  }
  return 0;
}

}  // namespace billow::supervise
