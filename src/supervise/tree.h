// The job's processes, all of them: the supervisor is their subreaper, so whatever they fork,
// however often and into whichever session, stays a descendant. With a cgroup of its own the job is
// found there; without one by walking /proc.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "supervise/spec.h"

namespace billow::supervise {

class Tree {
 public:
  explicit Tree(const Spec& spec) : spec_(spec) {}

  // Sends a signal to every descendant. The number reached; `refused` counts those we may not
  // signal (EPERM).
  std::size_t signal(int number, std::size_t* refused = nullptr) const;
  // Stops every process where it is, by the freezer where there is one, else by SIGSTOP.
  // Idempotent.
  void freeze() const;
  void thaw() const;
  // SIGKILL for everything, through the cgroup where that is possible.
  std::size_t kill_all(std::size_t* refused) const;
  // OOM kills inside the job's memory cgroup so far.
  unsigned long oom_kills() const;

 private:
  const Spec& spec_;
};

}  // namespace billow::supervise
