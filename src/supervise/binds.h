// Volumes: directories of the node, mounted where the job wants them, in the job's own mount
// namespace.
//
// Nothing is created on the node. If the wanted directory does not exist, the nearest existing one
// above it is replaced, in this namespace, by a tmpfs with all its entries bound into it, in which
// the missing directories are created.
#pragma once

#include "supervise/spec.h"

namespace billow::supervise {

// Runs in the child, inside its mount namespace, before privileges are dropped. 0, or an errno with
// what failed in `*stage`.
int mount_binds(const Spec& spec, const char** stage);

}  // namespace billow::supervise
