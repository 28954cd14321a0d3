// Namespaces of one's own, without any privilege: what a job's command, or podman for it, is
// started in.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace billow::container {

enum class Identity {
  as_root,  // inside, the user is root; outside it stays who it is
  as_self,  // the same number inside and out
};

// A user namespace with this one user in it, and a mount namespace. Root itself also gets one:
// inside, it has none of its power over the machine. Cannot be undone; the process must have one
// thread.
Status enter_namespaces(Identity identity);
// A mount namespace alone, for those who may.
Status enter_mount_namespace();

// A network of its own, in which there is a loopback and nothing else. After the others.
Status enter_empty_network();

// Control groups can be seen and not changed: whatever runs here stays in the group in which it was
// started, with its limits, and the runtime makes none of its own. Works on hosts with v1, v2 and
// both.
Status lock_control_groups();

struct OverlayMount {
  std::string directory;           // the lower ones may be relative to it
  std::vector<std::string> lower;  // the uppermost first
  std::string upper, work;         // both empty: read-only
  std::string target;
};
Status mount_overlay(const OverlayMount& mount);
Status mount_memory(const std::string& target, std::string_view options);
Status bind(const std::string& source, const std::string& target, bool read_only);

}  // namespace billow::container
