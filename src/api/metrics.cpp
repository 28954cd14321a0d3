// /metrics for Prometheus: the GPUs under the names of NVIDIA's dcgm-exporter, so that existing dashboards work, and Billow's own
// figures as billow_*. Text exposition format 0.0.4, made from the state and the newest readings; a scrape changes nothing.
#include <fmt/format.h>

#include "api/call.h"

namespace billow::api::admin {
namespace {

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

struct Family {
  const char* name;
  const char* type;
  const char* help;
  std::string samples;
  void add(std::string_view labels, double value) {
    fmt::format_to(std::back_inserter(samples), "{}{}{}{} {}\n", name, labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}", value);
  }
  void write(std::string& out) const {
    if (samples.empty()) return;
    fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    out += samples;
  }
};

std::string gpu_metrics(const Host& host) {
  Family util{"DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", ""}, used{"DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", ""},
      free{"DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", ""}, power{"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", ""},
      temperature{"DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", ""},
      given{"billow_gpu_given_out", "gauge", "Share of the GPU that leases hold, 0 to 1.", ""}, healthy{"billow_gpu_healthy", "gauge", "1 while the GPU takes work.", ""};
  const auto& state = host.state();
  for (const auto& [id, node] : state.nodes) {
    std::vector<std::int64_t> milli(node.offer.gpus.size());
    if (const auto on = state.tasks_on.find(id); on != state.tasks_on.end())
      for (TaskId task : on->second)
        for (const GpuGrant& grant : state.tasks.at(task).gpus)
          if (static_cast<std::size_t>(grant.gpu) < milli.size()) milli[static_cast<std::size_t>(grant.gpu)] += grant.share.milli;
    std::vector<std::string> labels;
    for (std::size_t i = 0; i < node.offer.gpus.size(); ++i) {
      const NodeGpu& gpu = node.offer.gpus[i];
      labels.push_back(fmt::format("gpu=\"{}\",UUID=\"{}\",modelName=\"{}\",Hostname=\"{}\"", gpu.index, label_value(gpu.uuid), label_value(gpu.model), label_value(node.offer.name)));
      given.add(labels.back(), static_cast<double>(milli[i]) / 1000);
      healthy.add(labels.back(), gpu.unhealthy.empty() && node.reachable ? 1 : 0);
    }
    const auto* readings = host.readings(id);
    if (!readings) continue;
    for (const auto& reading : readings->gpus) {
      const auto index = static_cast<std::size_t>(reading.gpu);
      if (index >= labels.size()) continue;
      if (reading.util_pct >= 0) util.add(labels[index], reading.util_pct);
      used.add(labels[index], static_cast<double>(reading.mem_used_mib));
      free.add(labels[index], static_cast<double>(node.offer.gpus[index].mem_mib - reading.mem_used_mib));
      power.add(labels[index], static_cast<double>(reading.power_mw) / 1000);
      temperature.add(labels[index], reading.temperature_c);
    }
  }
  std::string out;
  for (const Family* family : {&util, &used, &free, &power, &temperature, &given, &healthy}) family->write(out);
  return out;
}

std::string own_metrics(const Host& host) {
  const auto& state = host.state();
  Family jobs{"billow_jobs", "gauge", "Live jobs by state.", ""}, nodes{"billow_nodes", "gauge", "Nodes by state.", ""},
      rate{"billow_spend_usd_per_second", "gauge", "What the leases held now cost, by project.", ""},
      seq{"billow_journal_events_total", "counter", "Events in the journal.", ""}, behind{"billow_journal_queued_bytes", "gauge", "Appended to the journal, not durable yet.", ""},
      oldest{"billow_queue_oldest_seconds", "gauge", "How long the oldest queued job has waited.", ""}, full{"billow_store_disk_low", "gauge", "1 while the disk is full and new work is refused.", ""};
  for (const auto& [job_state, count] : state.count) jobs.add(fmt::format("state=\"{}\"", enum_name(job_state)), static_cast<double>(count));
  std::map<std::string, int> by_state;
  for (const auto& [id, node] : state.nodes) ++by_state[!node.reachable ? "unreachable" : node.drained.empty() ? "ready" : "drained"];
  for (const auto& [name, count] : by_state) nodes.add(fmt::format("state=\"{}\"", name), count);
  std::map<ProjectId, std::int64_t> nano_per_s;
  for (const auto& [id, task] : state.tasks)
    if (task.state != TaskState::ended) nano_per_s[state.jobs.at(task.job).project] += task.rate.nano_usd_per_s * ledger::charged_milli(task) / 1000;
  for (const auto& [project, nano] : nano_per_s) rate.add(fmt::format("project=\"{}\"", label_value(state.projects.at(project).name)), static_cast<double>(nano) / 1e9);
  seq.add("", static_cast<double>(state.seq));
  behind.add("", static_cast<double>(host.journal().queued_bytes()));
  full.add("", host.journal().health() == StoreHealth::ok ? 0 : 1);
  for (const auto& [id, job] : state.jobs) {  // numbers rise with time, so the first queued one is the oldest
    if (job.state != JobState::queued) continue;
    oldest.add("", (host.now() - job.submitted_at).seconds());
    break;
  }
  std::string out;
  for (const Family* family : {&jobs, &nodes, &rate, &seq, &behind, &full, &oldest}) family->write(out);
  return out;
}

}  // namespace

void metrics(CallPtr call) {
  net::Response response;
  response.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}};
  response.body = gpu_metrics(call->host) + own_metrics(call->host);
  call->exchange->respond(std::move(response));
}

}  // namespace billow::api::admin
