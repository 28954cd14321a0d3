// What this node offers to the head: its GPUs, CPUs, memory and labels.
#pragma once

#include <map>
#include <string>

#include "agent/node/node.h"
#include "base/result.h"
#include "core/model/node.h"
#include "gpu/device.h"

namespace billow::agent {

// `measured`: labels from the last fabric check.
NodeOffer make_offer(const NodeOptions& options,
                     const GpuInventory& inventory,
                     const std::map<std::string, std::string>& measured);

// Free for jobs' files, in whole GiB, so that the offer of a node that starts again stays the same.
std::int64_t free_disk_mib(const NodeOptions& options);

// Keeps only the GPUs of a list ("0,2", UUIDs, "none"; empty: all) that an engine gave this node.
Status keep_listed_gpus(const std::string& list, GpuInventory& inventory);

}  // namespace billow::agent
