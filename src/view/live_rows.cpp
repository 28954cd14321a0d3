#include "view/live_rows.h"

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json.h"
#include "base/text.h"
#include "core/ledger/meter.h"
#include "view/cost.h"
#include "view/names.h"

namespace billow::view {
namespace {

// The whole command is in the job's own document.
constexpr std::size_t command_bytes_max = 160;

void put_time(std::string& out, const char* name, WallTime at) {
  if (at)
    append_format(out, ",\"{}\":{}", name, at.ns / 1'000'000);
}

}  // namespace

void put_job(std::string& out,
             const control::State& state,
             const Job& job,
             std::string_view reason,
             const JobTimes* closed,
             Moment at) {
  append_format(out, "{{\"id\":{},\"label\":", job.id.value);
  append_json_string(out, job_label(job));
  out += ",\"name\":";
  append_json_string(out, job.spec->name);
  out += ",\"command\":";
  append_json_string(out, utf8_prefix(shell_join(job.spec->argv), command_bytes_max));
  out += ",\"user\":";
  append_json_string(out, user_name(state, job.user));
  out += ",\"project\":";
  append_json_string(out, project_name(state, job.project));
  append_format(out, ",\"state\":\"{}\",\"reason\":", enum_name(job.state));
  append_json_string(out, reason);
  const auto& spec = *job.spec;
  append_format(out, ",\"gpu_milli\":{},\"spot\":{},\"pty\":{},\"attempt\":{}",
                asked_gpu_milli(spec), spec.spot, spec.pty, job.attempt);
  put_time(out, "submitted", job.submitted_at);
  put_time(out, "started", job.started_at);
  if (job.started_at && closed)
    append_format(out, ",\"ran\":{},\"suspended\":{}", closed->ran.ms(), closed->suspended.ms());
  if (!job.tasks.empty())
    put_time(out, "since", state.tasks.at(job.tasks.front()).lease_from + (at.now - at.billed));
  out += ",\"where\":[";
  bool first = true;
  for (TaskId id : job.tasks) {
    const Task& task = state.tasks.at(id);
    if (task.state == TaskState::ended)
      continue;
    append_format(out, "{}[{}", first ? "" : ",", task.node.value);
    if (ledger::gpu_milli(task))
      for (const GpuGrant& grant : task.gpus)
        append_format(out, ",{}", grant.gpu);
    out += ']';
    first = false;
  }
  append_format(out, "],\"cost_nano\":{},\"rate_nano\":{},\"at\":{}}}",
                cost_so_far(state, job, at.billed).value, charge_rate_now(state, job),
                at.now.ns / 1'000'000);
}

void put_array(std::string& out, const control::State& state, const control::ArrayState& array) {
  append_format(out, "{{\"id\":{},\"label\":\"{}\",\"name\":", array.id.value, array.id.value);
  append_json_string(out, array.spec->name);
  out += ",\"command\":";
  append_json_string(out, utf8_prefix(shell_join(array.spec->argv), command_bytes_max));
  out += ",\"user\":";
  append_json_string(out, user_name(state, array.user));
  out += ",\"project\":";
  append_json_string(out, project_name(state, array.project));
  append_format(
      out,
      ",\"state\":\"{}\",\"reason\":\"{} of {} done, {} "
      "running\",\"gpu_milli\":{},\"spot\":{},\"pty\":false,\"attempt\":0",
      array.running ? "running" : "queued", array.count - array.left, array.count, array.running,
      array.spec->resources.gpus ? array.spec->resources.share.milli * array.spec->resources.gpus
                                 : 0,
      array.spec->spot);
  put_time(out, "submitted", array.submitted_at);
  append_format(out, ",\"where\":[],\"cost_nano\":{},\"rate_nano\":0,\"at\":0}}", array.cost.value);
}

}  // namespace billow::view
