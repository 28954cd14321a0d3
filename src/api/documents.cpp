#include "api/documents.h"

#include <fmt/format.h>
#include <set>

#include "api/host.h"
#include "api/idle_now.h"
#include "base/text.h"
#include "core/control/fabric.h"
#include "core/control/money.h"
#include "core/ledger/meter.h"
#include "core/sched/mig.h"
#include "core/wire/codec.h"

namespace billow::api {
namespace {

Json time_or_null(WallTime t) {
  return t ? Json(format_utc(t)) : Json();
}

std::string user_name(const control::State& state, UserId id) {
  const auto found = state.users.find(id);
  return found == state.users.end() ? "" : found->second.name;
}
std::string project_name(const control::State& state, ProjectId id) {
  const auto found = state.projects.find(id);
  return found == state.projects.end() ? "" : found->second.name;
}
std::string node_name(const control::State& state, NodeId id) {
  const auto found = state.nodes.find(id);
  return found == state.nodes.end() ? fmt::format("node {}", id.value) : found->second.offer.name;
}
std::string gpu_type(const control::State& state, const Task& task) {
  const auto node = state.nodes.find(task.node);
  if (node == state.nodes.end() || task.gpus.empty())
    return "";
  const auto& gpus = node->second.offer.gpus;
  const auto index = static_cast<std::size_t>(task.gpus.front().gpu);
  return index < gpus.size() ? gpus[index].type : "";
}

Json string_map(const std::map<std::string, std::string>& map) {
  Json out = Json::object();
  for (const auto& [key, value] : map)
    out.set(key, value);
  return out;
}
Json mig_profiles(const NodeGpu& gpu) {
  Json out = Json::array();
  for (const sched::MigPlace& place : sched::parse_mig_offer(gpu.mig).places)
    out.push(place.profile);
  return out;
}
// The MIG instances of a card: those that exist, and those that are held (which may have been made
// for their job), by place.
struct HeldInstance {
  std::string profile;
  JobId job;
};
Json mig_instances(const NodeGpu& gpu, const std::map<std::int32_t, HeldInstance>& held) {
  std::map<std::int32_t, HeldInstance> all = held;
  for (const sched::MigPlace& place : sched::parse_mig_offer(gpu.mig).places)
    all.try_emplace(place.start, HeldInstance{place.profile, {}});
  Json out = Json::array();
  for (const auto& [start, instance] : all)
    out.push(Json::object({{"profile", instance.profile},
                           {"start", start},
                           {"job", instance.job ? Json(instance.job.value) : Json()}}));
  return out;
}
Json strings(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const auto& s : list)
    out.push(s);
  return out;
}

// What a job and an array show alike: the description.
void add_spec(Json& doc, const JobSpec& spec) {
  doc.set("name", spec.name);
  doc.set("command", shell_join(spec.argv));
  doc.set("argv", strings(spec.argv));
  doc.set("cwd", spec.cwd);
  if (const Surroundings& around = spec.surroundings; !around.image.empty())
    doc.set("image", around.image);
  else if (!around.environment.empty())
    doc.set("environment",
            Json::object({{"name", around.environment}, {"digest", around.environment_digest}}));
  const auto objects = [](const std::vector<ObjectWish>& wishes) {
    Json out = Json::array();
    for (const ObjectWish& wish : wishes)
      out.push(Json::object({{"url", wish.url}, {"path", wish.path}}));
    return out;
  };
  if (const Surroundings& around = spec.surroundings;
      !around.volumes.empty() || !around.inputs.empty() || !around.outputs.empty()) {
    Json volumes = Json::array();
    for (const VolumeWish& wish : around.volumes)
      volumes.push(
          Json::object({{"name", wish.name}, {"path", wish.path}, {"read_only", wish.read_only}}));
    if (!around.volumes.empty())
      doc.set("volumes", std::move(volumes));
    if (!around.inputs.empty())
      doc.set("inputs", objects(around.inputs));
    if (!around.outputs.empty())
      doc.set("outputs", objects(around.outputs));
  }
  if (const Surroundings& around = spec.surroundings; true) {
    // Which ones, and as what; never their values.
    Json secrets = Json::array();
    for (const SecretWish& wish : around.secrets) {
      Json one = Json::object({{"name", wish.name}});
      if (wish.file.empty())
        one.set("variable", wish.variable);
      else
        one.set("file", wish.file);
      secrets.push(std::move(one));
    }
    if (!around.secrets.empty())
      doc.set("secrets", std::move(secrets));
    if (around.network != RoomNetwork::host)
      doc.set("network", enum_name(around.network));
    if (around.processes_max > 0)
      doc.set("processes_max", around.processes_max);
  }
  doc.set("retries", spec.retries);
  doc.set("priority", spec.priority);
  doc.set("spot", spec.spot);
  if (spec.strict)
    doc.set("strict", true);
  if (spec.time_sliced)
    doc.set("time_sliced", true);
  if (!spec.resources.mig_profile.empty())
    doc.set("mig_profile", spec.resources.mig_profile);
  doc.set("time_limit_s", spec.time_limit.ns / 1'000'000'000);
  doc.set("gpus", spec.resources.gpus);
  doc.set("gpu_milli", spec.resources.gpus ? spec.resources.share.milli * spec.resources.gpus : 0);
  doc.set("gpu_mem_mib", spec.resources.share.mem_mib);
  doc.set("gpu_types", strings(spec.resources.gpu_types));
  doc.set("nodes", spec.nodes);
  doc.set("cpu_milli", spec.resources.cpu_milli);
  doc.set("mem_mib", spec.resources.mem_mib);
  doc.set("pty", spec.pty);
  doc.set("labels", string_map(spec.labels));
  Json after = Json::array();
  for (const Dependency& d : spec.after)
    after.push(Json::object({{"job", d.job.value}, {"kind", enum_name(d.kind)}}));
  doc.set("after", std::move(after));
}

Json exit_document(const ExitStatus& exit) {
  return Json::object({{"kind", enum_name(exit.kind)},
                       {"code", exit.code},
                       {"signal", exit.signal},
                       {"text", exit.text()}});
}

// The instances a task holds: which profile, on which card, from which memory slice on.
Json mig_of(const Task& task, const std::string& profile) {
  Json out = Json::array();
  for (const GpuGrant& grant : task.gpus)
    if (grant.mig_start >= 0)
      out.push(
          Json::object({{"gpu", grant.gpu}, {"profile", profile}, {"start", grant.mig_start}}));
  return out;
}

Json task_document(const control::State& state, const Task& task, const std::string& mig_profile) {
  Json gpus = Json::array();
  for (const GpuGrant& grant : task.gpus)
    gpus.push(grant.gpu);
  Json doc = Json::object({{"id", task.id.value},
                           {"rank", task.rank},
                           {"node", node_name(state, task.node)},
                           {"node_id", task.node.value},
                           {"state", enum_name(task.state)},
                           {"gpus", std::move(gpus)},
                           {"gpu_type", gpu_type(state, task)},
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

std::string array_text(const ArraySpec& a) {
  std::string out = fmt::format("{}-{}", a.first, a.last);
  if (a.step != 1)
    out += fmt::format(":{}", a.step);
  if (a.running_max)
    out += fmt::format("%{}", a.running_max);
  return out;
}

// Whether it can be suspended at all, whatever it does just now, and if not why.
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

// Of a job on a node that does not answer: since when, and what that means for its bill.
std::string away_note(const control::State& state, const Job& job, WallTime now) {
  if (job.state != JobState::running && job.state != JobState::suspended)
    return {};
  std::string text;
  std::set<NodeId> told;
  for (TaskId id : job.tasks) {
    const Task* task = state.find_task(id);
    const auto node =
        task && task->state != TaskState::ended ? state.nodes.find(task->node) : state.nodes.end();
    if (node == state.nodes.end() || node->second.reachable ||
        now - node->second.unreachable_since < seconds(5) || !told.insert(node->first).second)
      continue;
    text +=
        fmt::format("{}{} unreachable for {}", text.empty() ? "" : ", ", node->second.offer.name,
                    format_duration(seconds(std::max<std::int64_t>(
                        0, (now - node->second.unreachable_since).ns / 1'000'000'000))));
  }
  return text.empty() ? text : text + "; charged only if it ran on";
}

}  // namespace

std::string job_label(const Job& job) {
  return job.array ? fmt::format("{}.{}", job.array.value, job.array_index)
                   : fmt::format("{}", job.id.value);
}

Json job_document(const control::State& state,
                  const Job& job,
                  const std::vector<Task>& tasks,
                  WallTime now) {
  Json doc = Json::object({{"id", job.id.value}, {"label", job_label(job)}});
  add_spec(doc, *job.spec);
  if (!job.image_digest.empty())
    doc.set("image_digest", job.image_digest);
  doc.set("user", user_name(state, job.user));
  if (const auto user = state.users.find(job.user);
      user != state.users.end() && user->second.unix_name != user->second.name)
    doc.set("unix_user", user->second.unix_name);
  doc.set("project", project_name(state, job.project));
  doc.set("state", enum_name(job.state));
  doc.set("final", is_final(job.state));
  doc.set("reason", job.reason);
  doc.set("attempt", job.attempt);
  if (job.array)
    doc.set("array", Json::object({{"id", job.array.value}, {"index", job.array_index}}));
  doc.set("submitted_at", format_utc(job.submitted_at));
  doc.set("started_at", time_or_null(job.started_at));
  doc.set("ended_at", time_or_null(job.ended_at));
  // Running and being suspended are told apart. A job that held one lease only has run since its
  // start; of others the leases tell (times.h).
  if (job.started_at) {
    std::uint64_t leases = job.attempt + (tasks.empty() && !is_final(job.state) ? 1u : 0u);
    for (const Task& task : tasks)
      leases = std::max<std::uint64_t>(leases, job.attempt + task.lease_number);
    doc.set("leases", leases);
    if (leases == 1) {
      const WallTime until = job.ended_at ? job.ended_at : now;
      doc.set("ran_s", std::max<std::int64_t>(0, (until - job.started_at).ns / 1'000'000'000));
      doc.set("suspended_s", 0);
    }
  }
  if (const std::string away = away_note(state, job, now); !away.empty() && job.reason.empty())
    doc.set("reason", away);
  if (!is_final(job.state))
    doc.set("suspendable", suspendable_document(state, job));
  if (job.not_before)
    doc.set("not_before", format_utc(job.not_before));
  NanoUsd cost = job.cost;
  std::int64_t rate = 0;
  Json task_list = Json::array();
  for (const Task& task : tasks) {
    if (task.state != TaskState::ended) {
      cost +=
          ledger::lease_cost(task, task.state == TaskState::unreachable
                                       ? std::min(now, state.nodes.at(task.node).unreachable_since)
                                       : now) +
          control::egress_so_far(state, task.id);
      if (task.state != TaskState::unreachable)
        rate += task.rate.nano_usd_per_s * ledger::charged_milli(task) / 1000;
    }
    task_list.push(task_document(state, task, job.spec->resources.mig_profile));
  }
  if (is_final(job.state)) {
    doc.set("exit", exit_document(job.exit));
    doc.set("exit_code", job.exit.shell_code());
  }
  doc.set("cost_nano_usd", cost.value);
  doc.set("cost", format_usd(cost));
  doc.set("rate", rate ? format_rate_per_hour({rate}) : std::string());
  doc.set("tasks", std::move(task_list));
  if (job.spec->checkpoint_every.ns > 0) {
    // How often a node is lost differs by orders of magnitude; once a day is what spot machines
    // come to.
    const Duration advised = checkpoint_interval(milliseconds(job.checkpoint.cost_ms), hours(24));
    doc.set("checkpoint", Json::object({{"path", job.checkpoint.path},
                                        {"at", time_or_null(job.checkpoint.at)},
                                        {"cost_ms", job.checkpoint.cost_ms},
                                        {"every_s", job.spec->checkpoint_every.ns / 1'000'000'000},
                                        {"advised_every_s", advised.ns / 1'000'000'000}}));
  }
  if (job.suspension.phase != SuspendPhase::none) {
    const Suspension& s = job.suspension;
    doc.set("suspension", Json::object({{"phase", enum_name(s.phase)},
                                        {"cause", enum_name(s.cause)},
                                        {"mode", enum_name(s.mode)},
                                        {"since", time_or_null(s.since)},
                                        {"resumes_by_itself", s.resume_wanted}}));
  }
  return doc;
}

Json live_job_document(const Host& host, const Job& job) {
  const auto& state = host.state();
  std::vector<Task> tasks;
  for (TaskId id : job.tasks)
    tasks.push_back(state.tasks.at(id));
  Json doc = job_document(state, job, tasks, host.now());
  // What its agent says of a job that does nothing.
  if (job.state == JobState::running)
    for (const Task& task : tasks)
      if (std::string text = idle_text(state, task.id, host.readings(task.node)); !text.empty())
        doc.set("reason",
                job.reason.empty() ? std::move(text) : fmt::format("{}; {}", job.reason, text));
  return doc;
}

Json array_document(const control::State& state,
                    const control::ArrayState& array,
                    WallTime ended_at) {
  Json doc = Json::object({{"id", array.id.value}, {"label", fmt::format("{}", array.id.value)}});
  add_spec(doc, *array.spec);
  doc.set("user", user_name(state, array.user));
  doc.set("project", project_name(state, array.project));
  const bool ok = array.succeeded == array.count;
  doc.set("state", ended_at ? (ok ? "succeeded" : "failed") : array.running ? "running" : "queued");
  doc.set("final", static_cast<bool>(ended_at));
  doc.set("reason", ended_at && !ok ? fmt::format("{} of {} elements did not succeed",
                                                  array.count - array.succeeded, array.count)
                                    : std::string());
  doc.set("array_spec", array_text(*array.spec->array));
  doc.set("elements", Json::object({{"count", array.count},
                                    {"left", array.left},
                                    {"running", array.running},
                                    {"succeeded", array.succeeded}}));
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
  return doc;
}

std::string waiting_reason(const control::State& state, const Job& job, WallTime now) {
  const bool waits = job.state == JobState::queued ||
                     (job.state == JobState::suspended && job.suspension.resume_wanted);
  if (!waits || !job.reason.empty())
    return job.reason;
  if (state.nodes.empty())
    return "no node has joined yet";
  const auto explanation = sched::explain(state.index, job.id, now, sched::Advice::none);
  if (explanation.reasons.empty())
    return {};
  std::string reason = explanation.reasons.front().text;
  // Who waits for a reservation of others can mostly start at once if it says how long it runs.
  // Trying costs plans: not behind a long queue.
  constexpr std::size_t advice_queue_max = 200;
  if (explanation.reasons.front().kind == sched::ReasonKind::reserved &&
      state.index.queued_count() <= advice_queue_max)
    if (const std::string cure = sched::explain(state.index, job.id, now).would_start_now;
        !cure.empty())
      reason += "; " + cure;
  return reason;
}

void add_waiting_reason(Json& document, const control::State& state, const Job& job, WallTime now) {
  if (std::string reason = waiting_reason(state, job, now); !reason.empty())
    document.set("reason", std::move(reason));
}

namespace {

// Whether it waits, or is suspended, inside a reservation that is over.
bool outside_time(const control::State& state, const Job& job) {
  return job.spec->reservation && !job.left_reservation && !control::reservation_of(state, job) &&
         job.state != JobState::running && job.stopping == StopCause::none;
}
sched::Explanation over_document(const control::State& state, const Job& job, bool for_array) {
  if (!for_array)
    return sched::reservation_over(job.id, job.spec->reservation);
  std::size_t elements = 0;
  for (auto at = state.jobs.lower_bound(JobId(job.array.value + 1));
       at != state.jobs.end() && at->second.array == job.array; ++at)
    elements += outside_time(state, at->second);
  return sched::reservation_over(job.array, job.spec->reservation, elements);
}

}  // namespace

Json explain_document(const control::State& state, const Job& job, WallTime now, bool for_array) {
  Json reasons = Json::array();
  Json earliest, would;
  if (outside_time(state, job)) {
    if (!job.reason.empty())
      reasons.push(Json::object({{"kind", "held"}, {"text", job.reason}}));
    const sched::Explanation over = over_document(state, job, for_array);
    for (const auto& r : over.reasons)
      reasons.push(Json::object({{"kind", sched::reason_name(r.kind)}, {"text", r.text}}));
    would = over.would_start_now;
  } else if (job.state == JobState::queued ||
             (job.state == JobState::suspended && job.suspension.resume_wanted)) {
    if (job.state == JobState::suspended && !job.reason.empty())
      reasons.push(Json::object({{"kind", "held"}, {"text", job.reason}}));
    const auto explanation = sched::explain(state.index, job.id, now);
    for (const auto& r : explanation.reasons) {
      Json reason = Json::object({{"kind", sched::reason_name(r.kind)}, {"text", r.text}});
      if (r.behind)
        reason.set("behind", r.behind.value);
      reasons.push(std::move(reason));
    }
    const WallTime played = sched::forecast(state.index, job.id, now);
    earliest = time_or_null(played ? played : explanation.earliest_start);
    if (!explanation.would_start_now.empty())
      would = explanation.would_start_now;
    for (const std::string& note : control::pool_notes(state, job, now))
      reasons.push(Json::object({{"kind", "pool"}, {"text", note}}));
  } else if (!job.reason.empty()) {
    reasons.push(Json::object(
        {{"kind", job.state == JobState::running ? "running" : "held"}, {"text", job.reason}}));
    earliest = time_or_null(job.not_before);
  }
  if (const std::string away = away_note(state, job, now); !away.empty())
    reasons.push(Json::object({{"kind", "node"}, {"text", away}}));
  for (const std::string& note : control::fabric_notes(state, job))
    reasons.push(Json::object({{"kind", "fabric"}, {"text", note}}));
  if (const std::string note = control::fabric_unmeasured(state, job); !note.empty())
    reasons.push(Json::object({{"kind", "fabric"}, {"text", note}}));
  Json expected;
  if (const Expectation& x = job.expected; x.runs > 0)
    expected = Json::object(
        {{"likely_s", x.likely.seconds()},
         {"at_most_s", x.at_most.seconds()},
         {"runs", x.runs},
         {"confidence", control::confidence(x)},
         {"text", fmt::format("it will run for about {}, hardly longer than {} ({} confidence, "
                              "from {} earlier run{})",
                              format_duration(x.likely), format_duration(x.at_most),
                              control::confidence(x), x.runs, x.runs == 1 ? "" : "s")}});
  return Json::object({{"id", job.id.value},
                       {"state", enum_name(job.state)},
                       {"reasons", std::move(reasons)},
                       {"earliest_start", std::move(earliest)},
                       {"would_start_now", std::move(would)},
                       {"expected", std::move(expected)}});
}

Json node_document(const control::State& state,
                   const Node& node,
                   const wire::agent_v1::Heartbeat* readings) {
  Json gpus = Json::array();
  std::vector<std::int64_t> used(node.offer.gpus.size());
  std::vector<Json> jobs(node.offer.gpus.size(), Json::array());
  std::vector<std::map<std::int32_t, HeldInstance>> instances(node.offer.gpus.size());
  if (const auto on = state.tasks_on.find(node.id); on != state.tasks_on.end()) {
    for (TaskId id : on->second) {
      const Task& task = state.tasks.at(id);
      if (!task.holds_gpus())
        continue;
      for (const GpuGrant& grant : task.gpus) {
        const auto gpu = static_cast<std::size_t>(grant.gpu);
        if (gpu >= used.size())
          continue;
        used[gpu] += grant.share.milli;
        jobs[gpu].push(task.job.value);
        if (grant.mig_start >= 0)
          instances[gpu][grant.mig_start] = {state.jobs.at(task.job).spec->resources.mig_profile,
                                             task.job};
      }
    }
  }
  for (std::size_t i = 0; i < node.offer.gpus.size(); ++i) {
    const NodeGpu& gpu = node.offer.gpus[i];
    Json doc = Json::object({{"index", gpu.index},
                             {"type", gpu.type},
                             {"model", gpu.model},
                             {"vendor", gpu.vendor},
                             {"mem_mib", gpu.mem_mib},
                             {"uuid", gpu.uuid},
                             {"used_milli", used[i]},
                             {"unhealthy", node.gpu_trouble(gpu)},
                             {"jobs", std::move(jobs[i])},
                             {"nvlink_domain", gpu.nvlink_domain},
                             {"numa", gpu.numa},
                             {"mig", mig_profiles(gpu)},
                             {"mig_instances", mig_instances(gpu, instances[i])},
                             {"mig_any", sched::parse_mig_offer(gpu.mig).any}});
    if (readings) {
      for (const auto& r : readings->gpus) {
        if (r.gpu != gpu.index)
          continue;
        doc.set("util_pct", r.util_pct);
        doc.set("mem_used_mib", r.mem_used_mib);
        doc.set("power_w", static_cast<double>(r.power_mw) / 1000.0);
        doc.set("temperature_c", r.temperature_c);
        if (r.sm_active_permille >= 0)
          doc.set("sm_active_pct", r.sm_active_permille / 10.0);
        if (r.mem_util_pct >= 0)
          doc.set("mem_util_pct", r.mem_util_pct);
        doc.set("score", r.score);
        if (!r.fault.empty())
          doc.set("fault", r.fault);
      }
    }
    gpus.push(std::move(doc));
  }
  const char* status = !node.reachable         ? "unreachable"
                       : !node.drained.empty() ? "drained"
                                               : "ready";
  Json out = Json::object({{"id", node.id.value},
                           {"name", node.offer.name},
                           {"state", status},
                           {"reason", node.drained},
                           {"gpus", std::move(gpus)},
                           {"cpu_milli", node.offer.cpu_milli},
                           {"mem_mib", node.offer.mem_mib},
                           {"labels", string_map(node.offer.labels)},
                           {"version", node.offer.version},
                           {"simulated", node.offer.simulated},
                           {"arch", node.offer.arch},
                           {"joined_at", format_utc(node.joined_at)}});
  if (readings && readings->images_bytes >= 0)
    out.set("images", Json::object({{"bytes", readings->images_bytes},
                                    {"bytes_max_per_user", readings->images_bytes_max}}));
  return out;
}

namespace {

// What is kept of a secret so that it can be recognised stays in the journal: hashes of tokens and
// keys, the values of a job's environment, the path of a webhook (for many services it is the
// password). Whoever reads the journal is told that they are there.
void cover_secrets(Json& json) {
  if (json.is_array())
    for (Json& item : json.as_array())
      cover_secrets(item);
  if (!json.is_object())
    return;
  auto& members = json.as_object();
  std::erase_if(members,
                [](const Json::Member& m) { return m.first == "hash" || m.first == "sealed"; });
  for (auto& [name, value] : members) {
    if (name == "env" && value.is_object())
      for (auto& [variable, text] : value.as_object())
        text = Json("…");
    else if (name == "webhook" && value["url"].is_string()) {
      const std::string url = value["url"].as_string();
      const auto host = url.find("://");
      const auto path = url.find('/', host == std::string::npos ? 0 : host + 3);
      value.set("url", path == std::string::npos ? url : url.substr(0, path) + "/…");
    } else
      cover_secrets(value);
  }
}

}  // namespace

Json event_document(const Event& event) {
  std::string body;
  std::visit([&](const auto& b) { wire::JsonWriter::write(body, b); }, event.body);
  auto parsed = parse_json(body);
  if (parsed)
    cover_secrets(*parsed);
  // What the codec leaves out as the usual case is what a reader asks first.
  if (const auto* end = std::get_if<JobEnded>(&event.body); end && parsed)
    parsed->set("state", enum_name(end->state));
  return Json::object({{"seq", event.seq},
                       {"at", format_utc(event.at)},
                       {"kind", wire::variant_kind(event.body)},
                       {"actor", event.actor},
                       {"request_id", event.request_id},
                       {"event", parsed ? std::move(*parsed) : Json()}});
}

JobRow job_row(const control::State& state, const control::FinishedJob& finished) {
  const Job& job = finished.job;
  JobRow row;
  row.id = job.id;
  row.name = job.spec->name;
  row.user = job.user;
  row.project = job.project;
  row.state = enum_name(job.state);
  row.submitted_at = job.submitted_at;
  row.started_at = job.started_at;
  row.ended_at = job.ended_at;
  row.exit_code = job.exit.shell_code();
  row.array = job.array;
  row.array_index = job.array_index;
  for (const Task& task : finished.tasks) {
    row.nodes.push_back(node_name(state, task.node));
    row.gpu_count += static_cast<std::uint32_t>(task.gpus.size());
    row.gpu_milli += ledger::gpu_milli(task);
    row.gpu_type = gpu_type(state, task);
  }
  row.charge = job.cost;
  row.labels.assign(job.spec->labels.begin(), job.spec->labels.end());
  Json document = job_document(state, job, finished.tasks, job.ended_at);
  document.set("spec",
               parse_json(wire::to_json_text(*job.spec)).value_or(Json()));  // to run it again
  row.doc = document.dump();
  return row;
}

JobRow array_row(const control::State& state, const control::FinishedArray& finished) {
  const auto& array = finished.array;
  JobRow row;
  row.id = array.id;
  row.name = array.spec->name;
  row.user = array.user;
  row.project = array.project;
  row.state = array.succeeded == array.count ? "succeeded" : "failed";
  row.submitted_at = array.submitted_at;
  row.ended_at = finished.ended_at;
  row.exit_code = array.worst_code;
  row.charge = array.cost;
  row.labels.assign(array.spec->labels.begin(), array.spec->labels.end());
  row.doc = array_document(state, array, finished.ended_at).dump();
  return row;
}

LeaseRow lease_row(const control::ClosedLease& lease) {
  const Task& task = lease.task;
  LeaseRow row;
  row.id = ledger::lease_id(task);
  row.job = task.job;
  row.task = task.id;
  row.project = lease.project;
  row.user = lease.user;
  row.node_name =
      lease.node_name.empty() ? fmt::format("node {}", task.node.value) : lease.node_name;
  row.gpu_type = lease.gpu_type;
  row.milli = lease.milli.value_or(ledger::gpu_milli(task));
  row.price_class = enum_name(task.price_class);
  row.from = task.lease_from;
  row.to = lease.to;
  row.open = lease.open;
  row.charge = lease.charge;
  row.cost = lease.cost;
  row.idle = lease.idle;
  row.energy_mj = lease.energy_mj;
  row.egress = lease.egress;
  row.egress_bytes = lease.egress_bytes;
  row.gpus = static_cast<std::int32_t>(task.gpus.size());
  row.card_mem_mib = lease.card_mem_mib;
  const TaskMeter& meter = task.usage.meter;
  row.mem_peak_mib = meter.gpu_mem_peak_mib;
  row.sm_peak_pct = meter.sm_peak_pct;
  row.engine_p95_pct = meter.engine_p95_pct;
  row.measured = meter.measured;
  return row;
}

EntryRow entry_row(const ledger::Entry& entry) {
  return {entry.number, enum_name(entry.kind), entry.node,      entry.lease,
          entry.job,    entry.project,         entry.user,      entry.from,
          entry.to,     entry.amount,          entry.correction};
}

NodeDayRow node_day_row(const control::NodeDay& day) {
  return {day.day, day.name, day.pool, day.cost, day.provider_id};
}

}  // namespace billow::api
