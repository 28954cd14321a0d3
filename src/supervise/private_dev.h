// A /dev of the job's own, in a mount namespace of its own, without the devices of others.
//
// A fresh tmpfs is filled with what /dev holds, less the hidden names, and moved over /dev: what is
// hidden is not there, rather than there and refused. Device nodes are made anew where we may
// (cheap to make and to drop), else bind-mounted; links are copied; directories (pts, shm, mqueue,
// infiniband …) are bound whole unless something in them is hidden.
#pragma once

#include "supervise/spec.h"

namespace billow::supervise {

// Runs in the child, before privileges are dropped. 0, or an errno with what failed in `*stage`.
// The first makes the mount namespace that the second and mount_binds() need.
int enter_mount_namespace(const Spec& spec, const char** stage);
int enter_private_dev(const Spec& spec, const char** stage);

}  // namespace billow::supervise
