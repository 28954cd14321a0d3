// Gives a job a private /dev, in a mount namespace, without devices that are not the job's.
//
// A new tmpfs gets the entries of /dev, except the hidden ones, and is moved over /dev: hidden
// devices do not exist, rather than being refused. Device nodes are created if permitted (cheap to
// create and to drop), otherwise bind-mounted. Links are copied. Directories (pts, shm, mqueue,
// infiniband …) are bound whole unless something in them is hidden.
#pragma once

#include "supervise/spec.h"

namespace billow::supervise {

// Runs in the child, before privileges are dropped. 0, or an errno with what failed in `*stage`.
// The first makes the mount namespace that the second and mount_binds() need.
int enter_mount_namespace(const Spec& spec, const char** stage);
int enter_private_dev(const Spec& spec, const char** stage);

}  // namespace billow::supervise
