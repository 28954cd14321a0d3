// User namespaces in which an unprivileged user of the node is root: for programs that are not
// trusted although root starts them.
#pragma once

#include <cstdint>

#include "base/file.h"
#include "base/result.h"

namespace billow::process {

struct OutsideUser {
  std::uint32_t uid = 0, gid = 0;
};
// A new namespace whose root is this user outside. The caller needs the right to map it: root.
Result<Fd> make_user_namespace(const OutsideUser& root);
// Enters the namespace and becomes its root, without supplementary groups. Cannot be undone; the
// process must have one thread.
Status enter_user_namespace(int fd);
// The second half of it, for a process that has entered the namespace already.
Status become_namespace_root();

}  // namespace billow::process
