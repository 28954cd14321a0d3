// A /tmp and a /dev/shm of the job's own, in its mount namespace.
//
// /tmp is an empty directory that the agent made for the task; /dev/shm is a new file system in
// memory, which counts as the job's memory and is freed with its last process. Directories below
// them that the job needs (its working directory, the agent's own) are shown at their usual paths,
// if the job's user could reach them without a link.
#pragma once

#include "supervise/spec.h"

namespace billow::supervise {

// Runs in the child, inside its mount namespace, before privileges are dropped and before anything
// of the job can run. 0, or an errno with what failed in `*stage`.
int mount_private_tmp(const Spec& spec, const char** stage);

}  // namespace billow::supervise
