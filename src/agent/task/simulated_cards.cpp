#include "agent/task/simulated_cards.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/sim/smi_cards.h"

namespace billow::agent {
namespace {

// Written again for each task: programs that clean /tmp may have removed it.
Status write_program(const std::string& directory) {
  BILLOW_TRY_VOID(make_directories(directory, 0711));
  ::chmod(directory.c_str(), 0755);
  const std::string path = directory + "/nvidia-smi";
  const std::string text = fmt::format("#!/bin/sh\nexec {} nvidia-smi \"$@\"\n",
                                       shell_quote(executable_dir() + "/billow"));
  if (const auto there = read_file(path, text.size() + 1); there && *there == text)
    return {};
  BILLOW_TRY_VOID(write_file_atomic(path, text, 0755, false));
  ::chmod(path.c_str(), 0755);  // regardless of the umask
  return {};
}

SmiCard describe(const GpuInfo& card, const GpuGrant& grant, const std::string& mig_uuid) {
  SmiCard out;
  out.uuid = card.uuid;
  out.name = card.model;
  out.bus = card.pci_bus_id;
  out.capability = card.compute_capability;
  out.mem_mib = card.memory_mib;
  out.milli = grant.share.milli;
  out.limit_mib = grant.share.whole() ? 0 : grant.share.mem_mib;
  out.power_w = card.power_limit_mw / 1000;
  out.idle_w = card.power_idle_mw / 1000;
  out.mig_on = card.mig.enabled;
  if (mig_uuid.empty())
    return out;
  const auto found = std::ranges::find(card.mig.instances, mig_uuid, &MigInstance::uuid);
  SmiInstance instance{"instance", mig_uuid, 0, grant.share.mem_mib};
  if (found != card.mig.instances.end())
    instance = {found->profile, mig_uuid, found->gpu_instance, found->mem_mib};
  out.limit_mib = instance.mem_mib;
  out.mig.push_back(std::move(instance));
  return out;
}

}  // namespace

void add_simulated_smi(const wire::agent_v1::Start& start,
                       const SimulatedCards& granted,
                       Environment& env) {
  SmiCards out;
  for (std::size_t i = 0, mig = 0; i < granted.cards.size() && i < start.gpus.size(); ++i) {
    const GpuInfo& card = granted.cards[i];
    const bool instance = start.gpus[i].mig_start >= 0 && mig < granted.mig_uuids.size();
    SmiCard shown = describe(card, start.gpus[i], instance ? granted.mig_uuids[mig++] : "");
    // Several instances on one card are shown under it.
    if (!out.cards.empty() && instance && out.cards.back().uuid == shown.uuid) {
      out.cards.back().limit_mib += shown.limit_mib;
      out.cards.back().mig.push_back(std::move(shown.mig.front()));
      continue;
    }
    shown.index = static_cast<std::int64_t>(out.cards.size());
    out.driver = card.driver_version;
    out.cuda = card.runtime_version;
    out.cards.push_back(std::move(shown));
  }
  const std::string directory = granted.directory + "/sim-bin";
  if (const Status written = write_program(directory); !written)
    return log_warn("task {}: no nvidia-smi: {}", start.task.value, written.error().message);
  env[smi_variable] = smi_cards_text(out);
  env["PATH"] = directory + ":" + env["PATH"];
}

}  // namespace billow::agent
