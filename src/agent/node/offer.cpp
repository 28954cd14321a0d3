#include "agent/node/offer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "agent/observe/disk_use.h"
#include "agent/reach/fabric.h"
#include "base/text.h"
#include "gpu/describe.h"
#include "gpu/host.h"

namespace billow::agent {
namespace {

void add_labels(const NodeOptions& options,
                const GpuInventory& inventory,
                const std::map<std::string, std::string>& measured,
                NodeOffer& out) {
  out.labels = options.labels;
  if (!options.pool.empty())
    out.labels["pool"] = options.pool;
  if (options.bills)
    out.labels["bills"] = "yes";
  // The file system of the jobs' data, for pools that bill for storage.
  if (const std::int64_t size = disk_space(options.data_dir).size; size >= 0)
    out.labels.emplace("disk-gib", std::to_string(size >> 30));
  for (const auto& [key, value] : link_labels(inventory.gpus))
    out.labels.emplace(key, value);
  for (const auto& [key, value] : measured)
    out.labels.emplace(key, value);
}

// An allocation of Slurm may be smaller than the machine.
void limit_to_allocation(NodeOffer& out) {
  const auto given = [](const char* name) {
    const char* text = ::getenv(name);
    return text ? parse_int(text, 1, 1 << 30).value_or(0) : 0;
  };
  if (const std::int64_t cpus = given("SLURM_CPUS_ON_NODE"); cpus > 0)
    out.cpu_milli = std::min(out.cpu_milli, cpus * 1000);
  if (const std::int64_t mem = given("SLURM_MEM_PER_NODE"); mem > 0)
    out.mem_mib = std::min(out.mem_mib, mem);
}

}  // namespace

std::int64_t free_disk_mib(const NodeOptions& options) {
  const std::string& directory = options.work_under.empty() ? options.data_dir : options.work_under;
  return std::max<std::int64_t>(disk_space(directory).free >> 30, 0) * 1024;  // whole GiB
}

NodeOffer make_offer(const NodeOptions& options,
                     const GpuInventory& inventory,
                     const std::map<std::string, std::string>& measured) {
  NodeOffer out;
  if (const auto host = read_host()) {
    out.name = options.node_name.empty() ? host->hostname : options.node_name;
    out.boot_id = host->boot_id;
    out.arch = host->arch;
    // The kernel's figure varies by a few MiB; rounded, the offer stays the same.
    out.mem_mib = host->memory_usable_mib / 64 * 64;
    out.cpu_milli = static_cast<std::int64_t>(host->cpus_usable) * 1000;
  }
  if (!check_name("node", out.name))
    out.name = "node";
  out.version = options.version;
  out.simulated = inventory.simulated;
  out.gpus = node_gpus(inventory, options.allow_mig_changes);
  for (std::size_t i = 0; i < out.gpus.size(); ++i)
    out.gpus[i].index = static_cast<std::int32_t>(i);
  out.disk_mib = free_disk_mib(options);
  add_labels(options, inventory, measured, out);
  if (options.in_allocation)
    limit_to_allocation(out);
  return out;
}

Status keep_listed_gpus(const std::string& list, GpuInventory& inventory) {
  if (list.empty())
    return {};
  std::vector<GpuInfo> kept;
  if (list != "none" && list != "NoDevFiles")
    for (const std::string& word : split(list, ',')) {
      const auto card =
          std::find_if(inventory.gpus.begin(), inventory.gpus.end(), [&](const GpuInfo& gpu) {
            return std::to_string(gpu.index) == trim(word) ||
                   (word.size() > 6 && gpu.uuid.starts_with(trim(word)));
          });
      if (card == inventory.gpus.end())
        return fail(Code::not_found, fmt::format("this machine has no GPU {}", word),
                    "check --only-gpus");
      kept.push_back(*card);
    }
  inventory.gpus = std::move(kept);
  return {};
}

}  // namespace billow::agent
