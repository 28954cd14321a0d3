// Mounts in which an unprivileged user owns the files that belong to root outside; what the user
// writes there belongs to root outside. For containers of root's jobs, whose programs must not run
// with uid 0. Needs a kernel that maps mounts (5.19 for images, 6.3 for files in memory) and a file
// system that allows it: local ones do, network file systems and overlays do not.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "container/plan.h"

namespace billow::container {

// Copies of mounts that nobody sees until show().
class MappedMounts {
 public:
  // unsupported: this kernel or file system cannot map the image's layers, or files in memory.
  static Result<MappedMounts> prepare(const Plan& plan, int user_namespace);
  // Attaches them below `directory`, which must be empty, and changes the plan to use them. A mount
  // that cannot be mapped is shown as it is: the user then has the rights of others there.
  Status show(const std::string& directory, Plan& plan) const;

 private:
  struct Copy {
    Fd fd;
    bool directory = true;
  };
  Copy layers_;
  std::vector<Copy> mounts_;  // in the plan's order
};

}  // namespace billow::container
