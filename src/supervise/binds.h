// Volumes: directories of the node, mounted where the job wants them, in the job's own mount
// namespace.
//
// Nothing is made on the node for it. Where the wanted directory is not there, the nearest one
// above it that is gets a shadow: a tmpfs with everything it holds bound into it, in which the
// missing directories can be made.
#pragma once

#include "supervise/spec.h"

namespace billow::supervise {

// Runs in the child, inside its mount namespace, before privileges are dropped. 0, or an errno with
// what failed in `*stage`.
int mount_binds(const Spec& spec, const char** stage);

}  // namespace billow::supervise
