#include "head/local_processes.h"

#include "base/log.h"
#include "head/local_agent.h"

namespace billow::head {
namespace {

bool skips(int& looks) {
  if (looks == 0)
    return false;
  --looks;
  return true;
}

}  // namespace

void LocalProcesses::watch_agent() {
  const HeadOptions& head = *options_.head;
  if (skips(agent_looks_to_skip_) || local_agent_alive(head.data_dir))
    return;
  const auto started =
      ensure_local_agent({head.data_dir, options_.head_address, head.data_dir + "/node-token",
                          head.sim, head.node_name, head.labels, options_.open_files});
  if (!started)
    log_error("{}", started.error().message);
  else if (*started)
    agent_started_ = options_.clock->steady();
  agent_looks_to_skip_ = 3;
}

void LocalProcesses::watch_gateway() {
  const HeadOptions& head = *options_.head;
  // The first look may replace a gateway that runs.
  if (skips(gateway_looks_to_skip_) || (gateway_looked_at_ && local_gateway_alive(head.data_dir)))
    return;
  gateway_looked_at_ = true;
  const auto started = ensure_local_gateway(
      {head.data_dir, head.gateway_listen, region(), head.webhook_hosts, head.gateway_user,
       head.otlp, head.trace_sample, head.sample_to, head.gateway_arguments});
  if (!started)
    log_error("{}", started.error().message);
  else if (*started)
    gateway_started_ = options_.clock->steady();
  gateway_looks_to_skip_ = 5;
}

bool LocalProcesses::agent_just_started() const {
  return just(agent_started_);
}

bool LocalProcesses::gateway_just_started() const {
  return just(gateway_started_);
}

bool LocalProcesses::just(const std::optional<SteadyTime>& started) const {
  constexpr Duration patience = seconds(10);
  return started && options_.clock->steady() - *started <= patience;
}

std::string LocalProcesses::region() const {
  std::string out;
  for (const std::string& label : options_.head->labels)
    if (label.starts_with("region="))
      out = label.substr(7);
  return out;
}

}  // namespace billow::head
