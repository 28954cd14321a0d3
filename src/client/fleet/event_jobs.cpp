// Sentences of jobs, tasks and endpoints.
#include <set>

#include "base/money.h"
#include "base/text.h"
#include "client/fleet/event_sentences.h"
#include "client/frame/table.h"
#include "core/model/job.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

std::string event_command(const Json& spec) {
  std::vector<std::string> words;
  for (const Json& word : spec["argv"].items())
    words.emplace_back(word.str_or(""));
  return shell_join(words);
}

// ", exit code 3", ", killed by SIGKILL", or nothing for success.
std::string event_ending(const Json& exit) {
  const auto status = wire::from_json<ExitStatus>(exit);
  if (!status || (status->kind == ExitKind::exited && status->code == 0))
    return {};
  return ", " + status->text();
}

std::string on_jobs_submitted(const EventReader& r) {
  const Json& spec = r.body["spec"];
  const std::uint64_t first = r.number("first"), taken = r.body["count"].uint_or(1);
  const std::uint64_t gpus = spec.at("resources", "gpus").uint_or(0),
                      nodes = spec["nodes"].uint_or(1);
  std::string text = fmt::format("{} {}", taken > 1 ? "array" : "job", first);
  if (const auto name = spec["name"].str_or(""); !name.empty())
    text += fmt::format(" ({})", name);
  text += " submitted";
  if (r.number("project"))
    text += " to project " + r.project();
  if (taken > 1)
    text += fmt::format(", {}", how_many(taken - 1, "element"));
  const std::int64_t share = spec.at("resources", "share").at("milli").int_or(0);
  if (gpus == 1 && share > 0 && share < 1000)
    text += fmt::format(", {:g} GPU", static_cast<double>(share) / 1000);
  else if (gpus)
    text += fmt::format(", {}{}", how_many(gpus, "GPU"),
                        nodes > 1 ? fmt::format(" on each of {} nodes", nodes) : "");
  if (const std::uint64_t others = r.number("waiting_for"))
    text += fmt::format(", waits for {}", how_many(others, "job"));
  const std::string command = event_command(spec);
  return command.empty() ? text : text + ": " + command;
}

std::string on_jobs_labelled(const EventReader& r) {
  std::string jobs, changes;
  for (const Json& job : r.body["jobs"].items())
    jobs += fmt::format("{}{}", jobs.empty() ? "" : ", ", job.uint_or(0));
  for (const auto& [key, value] : r.body["set"].members())
    changes += fmt::format("{}{}={} set", changes.empty() ? "" : ", ", key, value.str_or(""));
  for (const Json& key : r.body["remove"].items())
    changes += fmt::format("{}{} removed", changes.empty() ? "" : ", ", key.str_or(""));
  return fmt::format("labels of job{} {}: {}", r.body["jobs"].items().size() == 1 ? "" : "s", jobs,
                     changes);
}

std::string on_environment_stored(const EventReader& r) {
  return fmt::format("{} stored for the next job",
                     how_many(r.body["env"].size(), "environment variable"));
}

std::string on_job_ready(const EventReader& r) {
  return r.job() + " entered the queue";
}

std::string on_dependency_met(const EventReader& r) {
  return fmt::format("{} no longer waits for job {}", r.job(), r.number("on"));
}

// Learns which job and node each task has: later events name only the task.
std::string on_job_placed(const EventReader& r) {
  std::set<std::uint64_t> nodes;
  std::int64_t rate = 0, milli = 0;
  for (const Json& task : r.body["tasks"].items()) {
    const std::uint64_t id = task["id"].uint_or(0);
    r.names.jobs[id] = r.number("job");
    r.names.places[id] = task["node"].uint_or(0);
    nodes.insert(task["node"].uint_or(0));
    for (const Json& gpu : task["gpus"].items())
      milli += gpu.at("share", "milli").int_or(1000);
    rate = task["rate"].int_or(rate);
  }
  std::string where;
  for (const std::uint64_t node : nodes)
    where += (where.empty() ? "" : ", ") + EventReader::named(r.names.nodes, Json(node), "node");
  std::string text = fmt::format("{} placed on {}", r.job(), where.empty() ? "a node" : where);
  if (milli)
    text += fmt::format(", {:g} GPU{}", static_cast<double>(milli) / 1000, milli > 1000 ? "s" : "");
  if (milli && rate)
    text += fmt::format(" at {} per GPU", format_rate_per_hour({rate}));
  return text;
}

std::string on_task_started(const EventReader& r) {
  return r.task() + " started";
}

std::string on_task_ended(const EventReader& r) {
  if (r.body["never_began"].bool_or(false))
    return r.task() + " ended before its command began";
  return fmt::format("{} ended{}; cost {}", r.task(), event_ending(r.body["exit"]),
                     usd_text(r.body["cost"]));
}

std::string on_job_stopping(const EventReader& r) {
  return fmt::format("{} is being stopped{}{}{}", r.job(),
                     r.body["force"].bool_or(false) ? " without grace period" : "", r.for_job(),
                     r.because());
}

std::string on_job_requeued(const EventReader& r) {
  return fmt::format("{} is back in the queue{}", r.job(), r.because());
}

std::string on_job_ended(const EventReader& r) {
  const auto state = r.text("state", "succeeded"), reason = r.text("reason", "");
  std::string ending = event_ending(r.body["exit"]);  // may repeat the state or the reason
  if (!ending.empty() && (ending.substr(2) == reason || ending.substr(2).starts_with(state)))
    ending.clear();
  return fmt::format("{} {}{}{}", r.job(), state, ending, r.because());
}

std::string on_job_held(const EventReader& r) {
  return fmt::format("{} is held{}", r.job(), r.because());
}

std::string on_job_suspending(const EventReader& r) {
  return fmt::format("{} is being suspended{}{}", r.job(), r.for_job(), r.because());
}

std::string on_suspension_changed(const EventReader& r) {
  return fmt::format("{} {}{}", r.job(),
                     r.body["resume_wanted"].bool_or(false) ? "resumes as soon as its GPUs are free"
                                                            : "stays suspended",
                     r.because());
}

std::string on_task_suspended(const EventReader& r) {
  const std::string kept = fmt::format("{} suspended; {} of memory kept", r.task(),
                                       mebibytes(r.body["ram_mib"].int_or(0)));
  const auto failed = r.text("resume_failed", "");
  return failed.empty() ? kept : fmt::format("{} could not resume: {}", r.task(), failed);
}

std::string on_suspend_failed(const EventReader& r) {
  return fmt::format("{} could not be suspended and keeps running{}", r.job(), r.because());
}

std::string on_job_resuming(const EventReader& r) {
  return r.job() + " resumes";
}

std::string on_task_resumed(const EventReader& r) {
  return r.task() + " runs again";
}

std::string on_task_declared(const EventReader& r) {
  const auto reason = r.text("unsuspendable", "");
  return reason.empty() ? r.task() + " can be suspended"
                        : fmt::format("{} cannot be suspended: {}", r.task(), reason);
}

std::string on_task_rerated(const EventReader& r) {
  return fmt::format("{} costs {} per GPU from now on ({})", r.task(),
                     format_rate_per_hour({r.body["rate"].int_or(0)}),
                     r.text("price_class", "on-demand"));
}

std::string on_job_checkpointed(const EventReader& r) {
  return fmt::format("{} wrote a checkpoint to {}", r.job(),
                     r.body.at("checkpoint", "path").str_or("?"));
}

std::string on_member_replaced(const EventReader& r) {
  const Json& task = r.body["task"];
  r.names.jobs[task["id"].uint_or(0)] = r.number("job");
  r.names.places[task["id"].uint_or(0)] = task["node"].uint_or(0);
  return fmt::format("{}: rank {} was lost and starts again on {}", r.job(),
                     task["rank"].uint_or(0),
                     EventReader::named(r.names.nodes, task["node"], "node"));
}

std::string on_members_restarting(const EventReader& r) {
  const std::size_t n = r.body["tasks"].items().size();
  return fmt::format("{}: {} restart{}{}", r.job(), how_many(n, "member"), n == 1 ? "s" : "",
                     r.because());
}

std::string on_job_image_found(const EventReader& r) {
  return fmt::format("{} runs in the image {}", r.job(), r.text("digest"));
}

std::string on_reservation_left(const EventReader& r) {
  return fmt::format("{} left its reservation and pays the on-demand price{}", r.job(),
                     r.because());
}

std::string on_job_entered(const EventReader& r) {
  return fmt::format("{} entered {} by {} from {}", r.user(), r.job(), r.text("how"),
                     r.text("peer"));
}

// Events leave out what is the default, so each kind has its own action for none.
std::string idle_step(const EventReader& r, std::string_view otherwise) {
  const auto action = r.text("action", otherwise);
  return fmt::format("{} {}: {}", r.job(),
                     action == "suspend"     ? "is suspended because it is idle"
                     : action == "stop"      ? "is stopped because it is idle"
                     : action == "recovered" ? "is no longer idle"
                                             : "got an idle warning",
                     r.text("text", "idle"));
}

std::string on_idle_warned(const EventReader& r) {
  return idle_step(r, "warn");
}

std::string on_idle_acted(const EventReader& r) {
  return idle_step(r, "stop");
}

std::string on_kept_alive(const EventReader& r) {
  return fmt::format("{} is exempt from the idle rules for {}{}", r.job(),
                     format_duration(Duration{r.body["lasts_ns"].int_or(0)}), r.because());
}

std::string on_schedule_added(const EventReader& r) {
  const Json& schedule = r.body["schedule"];
  return fmt::format("schedule {} added, {} (UTC): {}", schedule["name"].str_or("?"),
                     schedule["cron"].str_or("?"), event_command(schedule["spec"]));
}

std::string on_schedule_removed(const EventReader& r) {
  return fmt::format("{} removed",
                     EventReader::quoted(r.names.schedules, r.body["schedule"], "schedule"));
}

std::string on_schedule_fired(const EventReader& r) {
  const std::string schedule =
      EventReader::quoted(r.names.schedules, r.body["schedule"], "schedule");
  if (r.number("job") == 0)
    return fmt::format("{} skipped a run{}", schedule, r.because("skipped"));
  return fmt::format("{} submits {}", schedule, r.job());
}

// ---- endpoints
std::string revision_of(const EventReader& r) {
  return fmt::format("endpoint {}: revision {}", r.text("endpoint"), r.number("revision"));
}
// " (its replica is job 12)", or nothing.
std::string replica_of(const EventReader& r) {
  return r.number("job") ? fmt::format(" (its replica was {})", r.job()) : std::string();
}

std::string on_endpoint_deployed(const EventReader& r) {
  const Json& revision = r.body["revision"];
  return fmt::format("endpoint {}: revision {} deployed: {}", r.text("endpoint"),
                     revision["number"].uint_or(0), event_command(revision["spec"]));
}

std::string on_revision_judged(const EventReader& r) {
  return r.body["healthy"].bool_or(false)
             ? revision_of(r) + " is healthy and serves"
             : fmt::format("{} failed{}{}", revision_of(r), replica_of(r), r.because());
}

std::string on_endpoint_scaled(const EventReader& r) {
  const Json& policy = r.body["policy"];
  return fmt::format("endpoint {} scales from {} to {}", r.text("endpoint"),
                     policy["min"].uint_or(0), how_many(policy["max"].uint_or(1), "replica"));
}

std::string on_endpoint_key_set(const EventReader& r) {
  return fmt::format("key {} of endpoint {} {}", r.body.at("key", "name").str_or("default"),
                     r.text("endpoint"), r.body["removed"].bool_or(false) ? "removed" : "created");
}

std::string on_endpoint_deleted(const EventReader& r) {
  return fmt::format("endpoint {} deleted", r.text("endpoint"));
}

std::string on_release_changed(const EventReader& r) {
  const Json& plan = r.body["release"];
  if (r.body["promoted"].bool_or(false))
    return revision_of(r) + " takes over from the old one";
  // In thousandths of all requests.
  const auto percent = [&](const char* part) {
    return static_cast<double>(plan[part].uint_or(0)) / 10;
  };
  return plan["mirror"].uint_or(0)
             ? fmt::format("{} gets copies of {:g} % of the requests", revision_of(r),
                           percent("mirror"))
             : fmt::format("{} gets {:g} % of the requests", revision_of(r), percent("traffic"));
}

std::string on_release_ended(const EventReader& r) {
  return fmt::format("{} is no longer a canary{}{}{}", revision_of(r),
                     r.body["automatic"].bool_or(false) ? ", rolled back automatically" : "",
                     replica_of(r), r.because());
}

std::string on_keys_used(const EventReader& r) {
  return fmt::format("usage of {} recorded", how_many(r.body["uses"].size(), "endpoint key"));
}

std::string on_endpoints_counted(const EventReader& r) {
  return fmt::format("requests of {} counted", how_many(r.body["counts"].size(), "endpoint"));
}

// Without the call's id: whoever has it can fetch the answer.
std::string on_call_accepted(const EventReader& r) {
  const Json& call = r.body["call"];
  return fmt::format("endpoint {} accepted an asynchronous call: {} {}",
                     call["endpoint"].str_or("?"), call["method"].str_or("POST"),
                     call["target"].str_or("/"));
}

std::string on_call_ended(const EventReader& r) {
  const std::int64_t status = r.body["status"].int_or(0);
  return fmt::format("an asynchronous call {}{}{}",
                     r.text("state", "done") == "done" ? "ended" : r.text("state", "done"),
                     status ? fmt::format(" with status {}", status) : std::string(), r.because());
}

std::string on_calls_forgotten(const EventReader& r) {
  return fmt::format("answers of {} expired", how_many(r.body["ids"].size(), "asynchronous call"));
}

std::string on_model_route_set(const EventReader& r) {
  const Json& route = r.body["route"];
  if (r.body["removed"].bool_or(false))
    return fmt::format("model {} removed", route["name"].str_or("?"));
  std::string to;
  for (const Json& target : route["to"].items())
    to += (to.empty() ? "" : ", ") + std::string(target["endpoint"].str_or("?"));
  return fmt::format("model {} is served by {}", route["name"].str_or("?"), to);
}

std::string on_domain_set(const EventReader& r) {
  const Json& domain = r.body["domain"];
  const auto endpoint = domain["endpoint"].str_or("");
  return r.body["removed"].bool_or(false)
             ? fmt::format("host name {} removed", domain["name"].str_or("?"))
         : endpoint.empty()
             ? fmt::format("host name {} serves no endpoint", domain["name"].str_or("?"))
             : fmt::format("host name {} serves endpoint {}", domain["name"].str_or("?"), endpoint);
}

std::string on_request_limits_set(const EventReader& r) {
  const Json& limits = r.body["limits"];
  const auto size = [&](const char* member) {
    const std::uint64_t bytes = limits[member].uint_or(0);
    return bytes ? "at most " + format_bytes(bytes) : std::string("not limited");
  };
  return fmt::format("requests to endpoint {}: body {}, header fields {}",
                     limits["endpoint"].str_or("?"), size("body_bytes_max"),
                     size("header_bytes_max"));
}

}  // namespace

void add_job_sentences(EventSentences& into) {
  into.insert({{"jobs_submitted", on_jobs_submitted},
               {"jobs_labelled", on_jobs_labelled},
               {"environment_stored", on_environment_stored},
               {"job_ready", on_job_ready},
               {"dependency_met", on_dependency_met},
               {"job_placed", on_job_placed},
               {"task_started", on_task_started},
               {"task_ended", on_task_ended},
               {"job_stopping", on_job_stopping},
               {"job_requeued", on_job_requeued},
               {"job_ended", on_job_ended},
               {"job_held", on_job_held},
               {"job_suspending", on_job_suspending},
               {"suspension_changed", on_suspension_changed},
               {"task_suspended", on_task_suspended},
               {"suspend_failed", on_suspend_failed},
               {"job_resuming", on_job_resuming},
               {"task_resumed", on_task_resumed},
               {"task_declared", on_task_declared},
               {"task_rerated", on_task_rerated},
               {"job_checkpointed", on_job_checkpointed},
               {"member_replaced", on_member_replaced},
               {"members_restarting", on_members_restarting},
               {"job_image_found", on_job_image_found},
               {"reservation_left", on_reservation_left},
               {"job_entered", on_job_entered},
               {"idle_warned", on_idle_warned},
               {"idle_acted", on_idle_acted},
               {"kept_alive", on_kept_alive},
               {"schedule_added", on_schedule_added},
               {"schedule_removed", on_schedule_removed},
               {"schedule_fired", on_schedule_fired}});
}

void add_endpoint_sentences(EventSentences& into) {
  into.insert({{"endpoint_deployed", on_endpoint_deployed},
               {"revision_judged", on_revision_judged},
               {"endpoint_scaled", on_endpoint_scaled},
               {"endpoint_key_set", on_endpoint_key_set},
               {"endpoint_deleted", on_endpoint_deleted},
               {"release_changed", on_release_changed},
               {"release_ended", on_release_ended},
               {"keys_used", on_keys_used},
               {"endpoints_counted", on_endpoints_counted},
               {"call_accepted", on_call_accepted},
               {"call_ended", on_call_ended},
               {"calls_forgotten", on_calls_forgotten},
               {"model_route_set", on_model_route_set},
               {"domain_set", on_domain_set},
               {"request_limits_set", on_request_limits_set}});
}

}  // namespace billow::client
