// What a new machine runs at its first start.
#pragma once

#include <string>

#include "pool/pool.h"

namespace billow::pool {

// A machine whose head has not known it for this long powers itself off, as does one that never
// joined. Less than limits::machine_join_max, so that the machine is usually the first to act.
inline constexpr Duration boot_alone_max = minutes(12);

struct BootOptions {
  // Shell words that print this node's rank (0, 1, …), for machines of several nodes. Empty: the
  // machine has one node.
  std::string rank;
  // Shell words that end the machine for good. Empty: `poweroff`. Where a powered-off machine is
  // still billed, the head ends it: its node is silent, and the provider's list is asked.
  std::string end;
  // Where the machine finds its cache disk: names with wildcards.
  std::string cache_disks;
};
// A machine waits this long for its cache disk, then does without.
inline constexpr Duration cache_wait_max = seconds(60);

// A shell script, which cloud-init and every provider's start-up script accept. It installs the
// program from the head (pinned by its hash, over the head's own authority), joins, and keeps the
// agent running. A second process asks the head once a minute whether it knows this machine.
// Identical for identical orders: providers compare user data when an order is repeated.
std::string boot_script(const Order& order,
                        const billow::Pool& settings,
                        const BootOptions& options = {});

// The system, its driver and images take about this much of a boot disk, beside the jobs' files.
inline constexpr std::int64_t boot_system_gib = 100;
// What jobs can have of a boot disk, the largest of which has so many GiB.
constexpr std::int64_t boot_disk_mib_max(std::int64_t gib) {
  return (gib - boot_system_gib) * 1024;
}
// How large the boot disk of a machine must be: as usual, or as its jobs need.
std::int64_t boot_disk_gib(const Machine& machine, std::int64_t usual_gib);

// The labels of the machine's nodes: those of the pool, and where the offer says it stands.
std::map<std::string, std::string> boot_labels(const Order& order, const billow::Pool& settings);

// For pools of kind command: a cloud-init file that installs nothing, starts `billow join` and
// keeps it running.
std::string cloud_init(const Order& order, const billow::Pool& settings);

}  // namespace billow::pool
