// All processes of the job. The supervisor is their subreaper, so everything they fork, into any
// session, stays a descendant. A job with its own cgroup is found there; otherwise by walking
// /proc.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "supervise/spec.h"

namespace billow::supervise {

class Tree {
 public:
  explicit Tree(const Spec& spec) : spec_(spec) {}

  // Sends a signal to every descendant and returns how many it reached; `refused` counts those we
  // may not signal (EPERM).
  std::size_t signal(int number, std::size_t* refused = nullptr) const;
  // Stops every process, by the freezer if there is one, otherwise by SIGSTOP. Idempotent.
  void freeze() const;
  void thaw() const;
  // Kills everything, through the cgroup if possible.
  std::size_t kill_all(std::size_t* refused) const;
  // OOM kills inside the job's memory cgroup so far.
  unsigned long oom_kills() const;

 private:
  const Spec& spec_;
};

}  // namespace billow::supervise
