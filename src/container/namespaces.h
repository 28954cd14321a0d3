// Unprivileged namespaces in which a job's command, or podman on its behalf, is started.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace billow::container {

enum class Identity {
  as_root,  // the user is root inside and unchanged outside
  as_self,  // the same uid inside and outside
};

// Enters a new user namespace that maps only this user, and a new mount namespace. Root gets one
// too and loses its power over the node inside. Cannot be undone; the process must have one thread.
Status enter_namespaces(Identity identity);
// Enters a new mount namespace only; the caller needs the privilege.
Status enter_mount_namespace();

// Enters a new network namespace that has only a loopback device. Call it after the others.
Status enter_empty_network();
// An error unless this process is in the network namespace of this inode.
Status check_network(std::uint64_t inode);

// Makes control groups read-only: every process stays in the group in which it was started, with
// its limits, and the runtime creates no others. Works on hosts with v1, v2 and both.
Status lock_control_groups();

struct OverlayMount {
  // Base of relative lower directories. If it is given, the working directory is / afterwards.
  std::string directory;
  std::vector<std::string> lower;  // topmost first
  std::string upper, work;         // both empty: read-only
  std::string target;
};
Status mount_overlay(const OverlayMount& mount);
Status mount_memory(const std::string& target, std::string_view options);
Status bind(const std::string& source, const std::string& target, bool read_only);

}  // namespace billow::container
