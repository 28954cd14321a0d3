#include "view/job_document.h"

#include <fmt/format.h>

#include "base/text.h"
#include "core/control/money.h"
#include "core/ledger/meter.h"
#include "core/model/surroundings.h"
#include "core/wire/codec.h"
#include "core/wire/node_labels.h"
#include "view/cost.h"
#include "view/json_parts.h"
#include "view/names.h"
#include "view/spec_document.h"
#include "view/waiting.h"

namespace billow::view {
namespace {

Json exit_document(const ExitStatus& exit) {
  return Json::object({{"kind", enum_name(exit.kind)},
                       {"code", exit.code},
                       {"signal", exit.signal},
                       {"text", exit.text()}});
}

// The MIG instances a task holds: the profile, the card, and the first memory slice.
Json mig_of(const Task& task, const std::string& profile) {
  Json out = Json::array();
  for (const GpuGrant& grant : task.gpus)
    if (grant.mig_start >= 0)
      out.push(
          Json::object({{"gpu", grant.gpu}, {"profile", profile}, {"start", grant.mig_start}}));
  return out;
}

Json task_document(const StoredTask& stored, const std::string& mig_profile) {
  const Task& task = stored.task;
  Json gpus = Json::array();
  for (const GpuGrant& grant : task.gpus)
    gpus.push(grant.gpu);
  Json doc = Json::object({{"id", task.id.value},
                           {"rank", task.rank},
                           {"node", stored.node},
                           {"node_id", task.node.value},
                           {"state", enum_name(task.state)},
                           {"gpus", std::move(gpus)},
                           {"gpu_type", stored.gpu_type},
                           {"gpu_milli", ledger::gpu_milli(task)},
                           {"started_at", time_or_null(task.started_at)},
                           {"ended_at", time_or_null(task.lease_to)}});
  if (Json mig = mig_of(task, mig_profile); mig.size())
    doc.set("mig", std::move(mig));
  if (task.price_class == PriceClass::suspended)
    doc.set("ram_mib", task.ram_mib);
  if (!task.unsuspendable.empty())
    doc.set("unsuspendable", task.unsuspendable);
  if (task.state == TaskState::ended) {
    doc.set("exit", exit_document(task.exit));
    doc.set("usage", Json::object({{"cpu_user_ns", task.usage.cpu_user_ns},
                                   {"cpu_system_ns", task.usage.cpu_system_ns},
                                   {"rss_peak_kib", task.usage.rss_peak_kib},
                                   {"log_bytes_lost", task.usage.log_bytes_lost}}));
  }
  return doc;
}

// Whether it can be suspended at all, whatever it is doing now, and if not why.
Json suspendable_document(const control::State& state, const Job& job) {
  bool never = !control::could_be_suspended(*job.spec);
  for (const TaskId id : job.tasks)
    if (const Task* task = state.find_task(id))
      never = never || !task->unsuspendable.empty();
  std::string why;
  if (const Status can = never ? control::suspendable(state, job) : Status(); !can) {
    why = can.error().message;
    if (const auto at = why.find(": "); at != std::string::npos)
      why.erase(0, at + 2);  // "job 12 cannot be suspended: …"
  }
  return Json::object({{"can", !never}, {"why", why}});
}

// `ran_s` and `suspended_s` of a job that held one lease: it ran from its start to its end. The
// times of other jobs come from their leases, which the store has (view/times.h).
void add_times(Json& document, const StoredJob& stored, WallTime now) {
  const Job& job = stored.job;
  document.set("submitted_at", format_utc(job.submitted_at));
  document.set("started_at", time_or_null(job.started_at));
  document.set("ended_at", time_or_null(job.ended_at));
  if (!job.started_at)
    return;
  std::uint64_t leases = job.attempt + (stored.tasks.empty() && !is_final(job.state) ? 1u : 0u);
  for (const StoredTask& task : stored.tasks)
    leases = std::max<std::uint64_t>(leases, job.attempt + task.task.lease_number);
  document.set("leases", leases);
  if (leases != 1)
    return;
  // The end of a job is recorded when the head learns of it, which is late if the head was down.
  // Its lease ends when the job did.
  Duration ran = (job.ended_at ? job.ended_at : now) - job.started_at;
  Duration held;
  for (const StoredTask& task : stored.tasks)
    held = std::max(held, task.task.lease_to - task.task.lease_from);
  if (job.ended_at && held.ns > 0)
    ran = std::min(ran, held);
  document.set("ran_s", std::max<std::int64_t>(0, ran.ns / 1'000'000'000));
  document.set("suspended_s", 0);
}

void add_identity(Json& document, const StoredJob& stored) {
  const Job& job = stored.job;
  add_spec(document, *job.spec);
  if (!job.image_digest.empty())
    document.set("image_digest", job.image_digest);
  document.set("user", stored.user);
  if (!stored.unix_user.empty())
    document.set("unix_user", stored.unix_user);
  if (job.agent)
    document.set("agent_token", job.agent.value);
  document.set("project", stored.project);
  document.set("state", enum_name(job.state));
  document.set("final", is_final(job.state));
  document.set("reason", job.reason);
  document.set("attempt", job.attempt);
  if (job.array)
    document.set("array", Json::object({{"id", job.array.value}, {"index", job.array_index}}));
}

void add_checkpoint(Json& document, const Job& job) {
  if (job.spec->checkpoint_every.ns <= 0)
    return;
  // How often a node is lost differs by orders of magnitude; about once a day is usual for spot
  // machines.
  const Duration advised = checkpoint_interval(milliseconds(job.checkpoint.cost_ms), hours(24));
  document.set("checkpoint",
               Json::object({{"path", job.checkpoint.path},
                             {"at", time_or_null(job.checkpoint.at)},
                             {"cost_ms", job.checkpoint.cost_ms},
                             {"every_s", job.spec->checkpoint_every.ns / 1'000'000'000},
                             {"advised_every_s", advised.ns / 1'000'000'000}}));
}

void add_suspension(Json& document, const Suspension& s) {
  if (s.phase == SuspendPhase::none)
    return;
  document.set("suspension", Json::object({{"phase", enum_name(s.phase)},
                                           {"cause", enum_name(s.cause)},
                                           {"mode", enum_name(s.mode)},
                                           {"since", time_or_null(s.since)},
                                           {"resumes_by_itself", s.resume_wanted}}));
}

struct Spent {
  NanoUsd cost;
  std::int64_t nano_usd_per_s = 0;
  std::vector<NanoUsd> by_role = {};
};

// One bill, by role.
void add_role_costs(Json& document, const std::vector<NanoUsd>& costs) {
  Json roles = Json::array();
  std::size_t number = 0;
  for (Json role : document["roles"].items()) {
    const NanoUsd cost = number < costs.size() ? costs[number] : NanoUsd{};
    ++number;
    role.set("cost", format_usd(cost));
    role.set("cost_nano_usd", cost.value);
    roles.push(std::move(role));
  }
  if (number > 0)
    document.set("roles", std::move(roles));
}

// The part that live and finished jobs share. `live` holds what only the state of a live job knows.
Json job_document(const StoredJob& stored, WallTime now, const Spent& spent, const Json& live) {
  const Job& job = stored.job;
  Json doc = Json::object({{"id", job.id.value}, {"label", job_label(job)}});
  add_identity(doc, stored);
  add_times(doc, stored, now);
  for (const auto& [name, value] : live.members())
    doc.set(name, value);
  if (job.not_before)
    doc.set("not_before", format_utc(job.not_before));
  if (is_final(job.state)) {
    doc.set("exit", exit_document(job.exit));
    doc.set("exit_code", job.exit.shell_code());
  }
  doc.set("cost_nano_usd", spent.cost.value);
  doc.set("cost", format_usd(spent.cost));
  doc.set("rate",
          spent.nano_usd_per_s ? format_rate_per_hour({spent.nano_usd_per_s}) : std::string());
  Json tasks = Json::array();
  for (const StoredTask& task : stored.tasks) {
    Json one = task_document(task, job.spec->resources.mig_profile);
    if (!job.spec->roles.empty())
      one.set("role", member_name(*job.spec, task.task.rank));
    tasks.push(std::move(one));
  }
  doc.set("tasks", std::move(tasks));
  add_role_costs(doc, spent.by_role);
  add_checkpoint(doc, job);
  add_suspension(doc, job.suspension);
  return doc;
}

}  // namespace

// Why the job's memory limit is not enforced where it runs; empty: it is, or it has none.
static std::string unlimited_memory(const control::State& state,
                                    const Job& job,
                                    const std::vector<Task>& tasks) {
  if (job.spec->resources.mem_mib <= 0)
    return {};
  for (const Task& task : tasks) {
    const auto node = state.nodes.find(task.node);
    if (node != state.nodes.end() && node->second.offer.labels.contains(wire::memory_limits_label))
      return fmt::format(
          "not enforced: node {} cannot write control groups; run `billow doctor` "
          "there",
          node->second.offer.name);
  }
  return {};
}

Json live_job_document(const control::State& state,
                       const Job& job,
                       Moment at,
                       const Readings& readings) {
  std::vector<Task> tasks;
  for (const TaskId id : job.tasks)
    tasks.push_back(state.tasks.at(id));
  std::string reason = job.reason;
  if (reason.empty())
    reason = away_note(state, job, at.billed);
  if (job.state == JobState::running)
    for (const Task& task : tasks)
      if (std::string text = idle_text(state, task.id, readings(task.node)); !text.empty())
        reason = job.reason.empty() ? std::move(text) : fmt::format("{}; {}", job.reason, text);
  Json live = Json::object(
      {{"reason", std::move(reason)}, {"suspendable", suspendable_document(state, job)}});
  if (job.suspension.phase == SuspendPhase::suspended)
    for (const Task& task : tasks)
      if (std::string text = asleep_text(task.id, readings(task.node)); !text.empty())
        live.set("asleep", std::move(text));
  const Environment& env = state.environment(job.spec->env_digest);
  if (const auto from = env.find("BILLOW_CHECKPOINT"); from != env.end())
    live.set("from_checkpoint", from->second);
  if (env.contains(surroundings::files)) {
    live.set("copied", true);
    Json kept = Json::array();
    if (const auto outputs = env.find(surroundings::outputs); outputs != env.end())
      for (const std::string& path : split(outputs->second, '\n'))
        kept.push(path);
    live.set("kept", std::move(kept));
  }
  if (const std::string note = unlimited_memory(state, job, tasks); !note.empty())
    live.set("memory_note", note);
  return job_document(stored_job(state, job, tasks), at.now,
                      {cost_so_far(state, job, at.billed), charge_rate_now(state, job),
                       role_costs_so_far(state, job, at.billed)},
                      live);
}

Json finished_job_document(const StoredJob& stored) {
  Json document = job_document(stored, stored.job.ended_at,
                               {stored.job.cost, 0, stored.job.role_costs}, Json::object());
  document.set("spec", parse_json(wire::to_json_text(*stored.job.spec)).value_or(Json()));
  return document;
}

// "3 of 10 elements failed, 2 were stopped".
static std::string how_elements_ended(const control::ArrayState& array) {
  const std::uint64_t failed = array.count - array.succeeded - array.stopped;
  if (failed == 0)
    return fmt::format("{} of {} elements {} stopped", array.stopped, array.count,
                       array.stopped == 1 ? "was" : "were");
  std::string text = fmt::format("{} of {} elements did not succeed", failed, array.count);
  if (array.stopped > 0)
    text += fmt::format(", {} {} stopped", array.stopped, array.stopped == 1 ? "was" : "were");
  return text;
}

Json array_document(const StoredArray& stored) {
  const control::ArrayState& array = stored.array;
  const WallTime ended_at = stored.ended_at;
  Json doc = Json::object({{"id", array.id.value}, {"label", fmt::format("{}", array.id.value)}});
  add_spec(doc, *array.spec);
  doc.set("user", stored.user);
  doc.set("project", stored.project);
  const bool ok = array.succeeded == array.count;
  doc.set("state", ended_at ? enum_name(array.ended_as()) : array.running ? "running" : "queued");
  doc.set("final", static_cast<bool>(ended_at));
  doc.set("reason", ended_at && !ok ? how_elements_ended(array) : std::string());
  doc.set("array_spec", array.spec->array->text());
  doc.set("elements", Json::object({{"count", array.count},
                                    {"left", array.left},
                                    {"running", array.running},
                                    {"succeeded", array.succeeded},
                                    {"stopped", array.stopped}}));
  doc.set("submitted_at", format_utc(array.submitted_at));
  doc.set("started_at", Json());
  doc.set("ended_at", time_or_null(ended_at));
  if (ended_at) {
    doc.set("exit", exit_document({.kind = ExitKind::exited, .code = array.worst_code}));
    doc.set("exit_code", array.worst_code);
  }
  doc.set("cost_nano_usd", array.cost.value);
  doc.set("cost", format_usd(array.cost));
  doc.set("rate", "");
  doc.set("attempt", 0);
  doc.set("tasks", Json::array());
  doc.set("spec", parse_json(wire::to_json_text(*array.spec)).value_or(Json()));
  return doc;
}

Json live_array_document(const control::State& state, const control::ArrayState& array) {
  return array_document(stored_array(state, array, {}));
}

}  // namespace billow::view
