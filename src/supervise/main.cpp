// billow-supervise TASK_DIRECTORY: runs the task described by TASK_DIRECTORY/spec and outlives its
// parent.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervise/as_user.h"
#include "supervise/init.h"
#include "supervise/secrets.h"
#include "supervise/supervisor.h"
#include "supervise/sys.h"

using namespace billow::supervise;

namespace {

int complain(const char* what, int error) {
  Text<256> line;
  line << "billow-supervise: " << what;
  if (error != 0)
    line << ": " << errno_text(error);
  line << "\n";
  const ssize_t ignored = write(2, line.data, line.size);
  (void)ignored;
  return 2;
}

// The agent passes the lock already locked; if started by hand, this program takes it. From here on
// the job may run, so the lock file has our pid: an empty file means to a restarted agent that
// nothing ever ran.
bool mark_lock() {
  int fd = fd_lock;
  if (fcntl(fd, F_GETFD) < 0)
    fd = open(file_lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
    return false;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  Text<32> pid;
  pid << static_cast<std::uint64_t>(getpid()) << "\n";
  return pwrite(fd, pid.data, pid.size, 0) == static_cast<ssize_t>(pid.size);
}

// A directory that its group may read is one of a root helper: the group is that of the agent,
// which reads the files that are made here.
void share_with_readers() {
  struct stat st {};
  if (geteuid() != 0 || stat(".", &st) != 0 || (st.st_mode & S_IRGRP) == 0 || st.st_gid == 0)
    return;
  setfsgid(st.st_gid);
  umask(027);
}

const char* map_spec(Spec* spec) {
  const int fd = open(file_spec, O_RDONLY | O_CLOEXEC);
  struct stat st {};
  if (fd < 0 || fstat(fd, &st) != 0)
    return "the task's spec cannot be read";
  const auto bytes = static_cast<std::size_t>(st.st_size);
  if (bytes < sizeof(SpecHeader) || bytes > spec_bytes_max)
    return "spec: wrong size";
  const std::size_t pointers = spec_pointers_needed(bytes);
  const std::size_t pointer_bytes = pointers * sizeof(const char*);
  // Read, not mapped, so that later changes of the file have no effect.
  auto* memory = static_cast<char*>(mmap(nullptr, bytes + pointer_bytes, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (memory == MAP_FAILED)
    return "no memory for the task's spec";
  char* data = memory + pointer_bytes;
  if (read(fd, data, bytes) != static_cast<ssize_t>(bytes))
    return "the task's spec cannot be read";
  close(fd);
  return decode_spec(data, bytes, reinterpret_cast<const char**>(memory), pointers, spec);
}

Spec spec;

}  // namespace

int main(int argc, char** argv) {
  if (const char* slash = argc > 0 ? strrchr(argv[0], '/') : nullptr;
      slash != nullptr && strcmp(slash + 1, as_user_name) == 0)
    return argc > 1 && strcmp(argv[1], init_word) == 0      ? run_as_init(argc, argv)
           : argc > 1 && strcmp(argv[1], confine_word) == 0 ? confine_command(argc, argv)
                                                            : become_image_user(argc, argv);
  if (argc > 3 && strcmp(argv[1], confine_word) == 0)
    return confine_command(argc, argv);
  if (argc != 2)
    return complain("usage: billow-supervise TASK_DIRECTORY", 0);
  umask(077);
  if (chdir(argv[1]) != 0)
    return complain(argv[1], errno);
  share_with_readers();
  setsid();
  close_range(fd_network_life + 1, ~0u, 0);  // the job must not have other descriptors of the agent
  if (!mark_lock())
    return complain("another supervisor holds this task, or its lock cannot be written", 0);
  fcntl(fd_network, F_SETFD, FD_CLOEXEC);
  fcntl(fd_network_life, F_SETFD, FD_CLOEXEC);
  const int ctl = fcntl(fd_ctl, F_SETFD, FD_CLOEXEC) == 0 ? fd_ctl : -1;
  const char* wrong = map_spec(&spec);
  if (wrong == nullptr)
    wrong = take_secrets(&spec);
  close(fd_secrets);
  static Redactor redactor;
  if (wrong == nullptr)
    wrong = redactor.take_from(fd_redacted);
  close(fd_redacted);
  if (wrong != nullptr) {
    Supervisor::record_not_started(wrong);
    return complain(wrong, 0);
  }
  static Supervisor supervisor(spec, redactor);
  return supervisor.run(ctl);
}
