#include "audit.h"
#include "endpoints.h"
#include "readings.h"

#include <fmt/format.h>

#include "core/ledger/meter.h"

namespace billow::sim {

namespace {
// The failure was the job's own, so retries apply.
bool own_fault(const ExitStatus& exit) {
  switch (exit.kind) {
    case ExitKind::exited:
      return exit.code != 0;
    case ExitKind::signaled:
    case ExitKind::oom:
    case ExitKind::timed_out:
    case ExitKind::exec_failed:
      return true;
    case ExitKind::stopped:
    case ExitKind::unpaid:
    case ExitKind::idle:
    case ExitKind::lost:
      return false;
  }
  return false;
}
std::string why_queued(const control::State& state, JobId id) {
  std::string out;
  for (const sched::Reason& reason : sched::explain(state.index, id, state.at).reasons)
    out += (out.empty() ? "" : "; ") + reason.text;
  return out;
}
}  // namespace

void Audit::read_journal() {
  while (read_ < world_.disk.records.size()) {
    const Record& record = world_.disk.records[read_++];
    const auto event = read_record(record, world_.readings.get());
    if (record.seq != read_)
      broken(fmt::format("record {} stands at place {}", record.seq, read_));
    if (record.at < last_at_)
      broken(fmt::format("recorded time runs backwards at {}", record.seq));
    last_at_ = record.at;
    add_to_hash(world_.counts.history, record);
    take(*event);
  }
}

// A head knows only what nodes told it, not what they told an earlier head.
void Audit::follow_nodes(const Event& event) {
  if (holds_alternative<HeadStarted>(event.body))
    heard_.clear();
  else if (const auto* e = get_if<NodeJoined>(&event.body))
    heard_.insert(e->node.id);
  else if (const auto* e = get_if<NodeReachable>(&event.body))
    heard_.insert(e->node);
  else if (const auto* e = get_if<NodeUnreachable>(&event.body))
    heard_.erase(e->node);
  else if (const auto* e = get_if<NodeRemoved>(&event.body))
    heard_.erase(e->node);
}

void Audit::check_heard(const Task& task) const {
  if (!heard_.contains(task.node))
    broken(fmt::format("task {} is given to {}, which has not connected to this head",
                       task.id.value, node_names_.at(task.node)));
}

void Audit::take(const Event& event) {
  world_.endpoints->saw(event);
  if (const auto* e = get_if<MachineGone>(&event.body); e && e->bill)
    machine_bills_ += e->bill->amount;
  follow_nodes(event);
  take_of_jobs(event);
  take_of_suspensions(event);
  take_of_reservations(event);
  if (holds_alternative<PriceSet>(event.body))
    own_prices_ = true;
  else if (const auto* e = get_if<ProjectChanged>(&event.body))
    limit_milli_ = e->quota.limit_milli;
  else if (const auto* e = get_if<SecretSet>(&event.body))
    secret_durable(e->secret.name, e->secret.sealed);
  else if (const auto* e = get_if<SecretRemoved>(&event.body))
    secret_durable(e->name, "");
  else if (const auto* e = get_if<NodeJoined>(&event.body))
    node_names_[e->node.id] = e->node.offer.name;
}

void Audit::submitted(const JobsSubmitted& e) {
  const bool array = e.spec->array.has_value();
  if (array)
    arrays_[e.first] = {e.spec, e.count - 1, e.count - 1, 0, 0};
  for (std::uint64_t i = array ? 1 : 0; i < e.count; ++i) {
    const auto [at, fresh] = jobs_.try_emplace(JobId(e.first.value + i));
    if (!fresh)
      broken(fmt::format("job number {} was given out twice", e.first.value + i));
    at->second.spec = e.spec;
    at->second.array = array ? e.first : JobId{};
    ++open_;
  }
  world_.trace("journal: job {} submitted ({} numbers, {} nodes × {} GPUs × {} m, retries {}{}{})",
               e.first.value, e.count, e.spec->nodes, e.spec->resources.gpus,
               e.spec->resources.share.milli, e.spec->retries,
               e.spec->rerun_if_lost ? ", may rerun" : "", e.spec->spot ? ", spot" : "");
}

void Audit::placed(const JobPlaced& e, WallTime billed, WallTime at) {
  JobStory& job = jobs_.at(e.job);
  if (ends_.contains(e.job))
    broken(fmt::format("job {} was placed after its end", e.job.value));
  if (job.running || job.suspended)
    broken(fmt::format("job {} was placed while it runs", e.job.value));
  if (job.attempts > 0 && !job.rerun_excused)
    broken(fmt::format("job {} starts again and may not", e.job.value));
  if (e.tasks.size() != job.spec->nodes)
    broken(fmt::format("job {} got {} of {} tasks", e.job.value, e.tasks.size(), job.spec->nodes));
  for (const Dependency& d : job.spec->after) {
    const auto end = end_of(d.job);
    if (!end)
      broken(fmt::format("job {} starts before job {} ended", e.job.value, d.job.value));
    if (d.kind != AfterKind::any && (d.kind == AfterKind::ok) != (*end == JobState::succeeded))
      broken(fmt::format("job {} starts against its dependency on {}", e.job.value, d.job.value));
  }
  if (job.array) {
    ArrayStory& array = arrays_.at(job.array);
    const std::uint64_t most = job.spec->array->running_max;
    if (++array.running > most && most > 0)
      broken(fmt::format("array {} runs {} of at most {}", job.array.value, array.running, most));
  }
  ++job.attempts;
  job.running = true;
  job.rerun_excused = false;
  job.stopping = StopCause::none;
  job.tasks.clear();
  for (const Task& task : e.tasks) {
    if (task.attempt != job.attempts)
      broken(
          fmt::format("job {}: attempt {} is called {}", e.job.value, job.attempts, task.attempt));
    add_task(task);
    if (task.lease_from != billed)
      broken(fmt::format("the lease of task {} does not begin when it was placed", task.id.value));
    job.tasks.push_back(task.id);
    job.all_tasks.push_back(task.id);
    world_.trace("journal: job {} attempt {}: task {} on {}", e.job.value, job.attempts,
                 task.id.value, node_names_[task.node]);
    check_shared(job, task, at);
    check_heard(task);
  }
}

void Audit::task_suspended(const TaskSuspended& e, WallTime at) {
  TaskStory& story = tasks_.at(e.task);
  JobStory& job = jobs_.at(story.task.job);
  world_.trace("journal: task {} is suspended {}", e.task.value, e.resume_failed);
  if (!job.running || job.stopping != StopCause::none || story.end)
    broken(fmt::format("task {} is suspended and did not run", e.task.value));
  if (const Process* p = story.process.get(); !p || (p->alive && !p->frozen))
    broken(fmt::format("task {} is recorded as suspended, but it runs", e.task.value));
  close_lease(story, e.lease_to, e.cost, at);
  story.task.price_class = PriceClass::suspended;
  story.task.rate = e.rate;
  story.task.ram_mib = e.ram_mib;
  leave_running(job);
  job.suspended = true;
  if (!e.resume_failed.empty())
    job.resume_wanted = false;
}

void Audit::resuming(const JobResuming& e, WallTime billed, WallTime at) {
  JobStory& job = jobs_.at(e.job);
  TaskStory& story = tasks_.at(e.task);
  world_.trace("journal: job {} is resuming", e.job.value);
  if (!job.suspended || !job.resume_wanted || job.stopping != StopCause::none)
    broken(fmt::format("job {} resumes and nobody wants it to", e.job.value));
  if (e.gpus != story.task.gpus)
    broken(fmt::format("job {} resumes on other GPUs than its image came from", e.job.value));
  close_lease(story, e.lease_to, e.cost, billed);
  story.task.price_class = e.price_class;
  story.task.rate = e.rate;
  job.suspended = job.resume_wanted = false;
  job.running = true;
  check_shared(job, story.task, at);
  check_heard(story.task);
  if (!job.array)
    return;
  const std::uint64_t most = job.spec->array->running_max;
  if (++arrays_.at(job.array).running > most && most > 0)
    broken(fmt::format("array {} runs more than {}", job.array.value, most));
}

void Audit::task_ended(const TaskEnded& e, WallTime at) {
  TaskStory& story = tasks_.at(e.task);
  if (story.end)
    broken(fmt::format("task {} ended twice", e.task.value));
  story.end = e;
  open_tasks_.erase(e.task);
  world_.trace("journal: task {} ended: {} ({} {})", e.task.value, enum_name(e.exit.kind),
               e.exit.code, e.exit.signal);
  const Process* p = story.process.get();
  const auto wrong = [&](const char* why) {
    broken(fmt::format("task {} is recorded as {} ({} {}), but {}", e.task.value,
                       enum_name(e.exit.kind), e.exit.code, e.exit.signal, why));
  };
  story.given_up = e.exit.kind == ExitKind::stopped && !heard_.contains(story.task.node) &&
                   jobs_.at(story.task.job).stopping == StopCause::request;
  if (story.given_up)
    given_up_.insert(e.task);
  if (p && p->alive && !story.given_up)
    wrong("its process lives");
  switch (e.exit.kind) {
    case ExitKind::exited:
    case ExitKind::signaled:
      if (!p)
        wrong("it never ran");
      if (p->vanished || p->killed_by_stop || p->timed_out)
        wrong("it did not end by itself");
      if (p->signal != e.exit.signal || p->code != e.exit.code)
        wrong("its process ended otherwise");
      if ((p->signal != 0) != (e.exit.kind == ExitKind::signaled))
        wrong("a signal is not an exit code");
      break;
    case ExitKind::timed_out:
      if (!p || !p->timed_out)
        wrong("its time limit did not pass");
      break;
    case ExitKind::stopped:
      if (p && !p->killed_by_stop && !story.given_up)
        wrong("nobody stopped it");
      break;
    case ExitKind::exec_failed:
      if (p)
        wrong("it ran");
      break;
    case ExitKind::unpaid:
      if (!p || !p->unpaid || !jobs_.at(story.task.job).spec->rerun_if_lost)
        wrong("nothing had to be paid");
      break;
    case ExitKind::oom:
      wrong("that does not happen here");
      break;
    case ExitKind::idle:
      wrong("nothing idles here");
      break;
    case ExitKind::lost:
      break;
  }
  close_lease(story, e.lease_to, e.cost, at);
  Duration held;
  for (const Task& lease : story.leases)
    held = held + (lease.lease_to - lease.lease_from);
  const Task& task = story.task;
  p = story.process.get();
  // A lost task is billed until it was last heard of.
  if (p && e.exit.kind != ExitKind::lost && !story.given_up && !world_.head_clock.stepped &&
      !p->node->clock.stepped && held.ns < p->ended_ns - p->started_ns)
    broken(fmt::format("task {} ran {} ms and is billed for {}", task.id.value,
                       (p->ended_ns - p->started_ns) / 1'000'000, held.ms()));
}

bool Audit::any_began(const JobStory& job) const {
  return std::any_of(job.tasks.begin(), job.tasks.end(),
                     [&](TaskId id) { return tasks_.at(id).process != nullptr; });
}

// The rank whose end decides: the first that did not end well and was not merely stopped. A service
// does not end well by itself.
const TaskEnded* Audit::decisive(const JobStory& job) const {
  const TaskEnded* out = nullptr;
  for (TaskId id : job.tasks) {
    const auto& end = tasks_.at(id).end;
    if (!end)
      broken(fmt::format("a job is settled while its task {} has not ended", id.value));
    const RoleSpec* role = member_of(*job.spec, tasks_.at(id).task.rank).role;
    if ((!end->exit.ok() || (role && role->service)) &&
        (!out || (out->exit.kind == ExitKind::stopped && end->exit.kind != ExitKind::stopped)))
      out = &*end;
  }
  return served_to_the_end(job) ? nullptr : out;
}

void Audit::leave_running(JobStory& job) {
  if (job.running && job.array)
    --arrays_.at(job.array).running;
  job.running = job.suspended = false;
}

void Audit::requeued(const JobRequeued& e) {
  JobStory& job = jobs_.at(e.job);
  const TaskEnded* end = decisive(job);
  leave_running(job);
  world_.trace("journal: job {} requeued: {}", e.job.value, e.reason);
  if (job.stopping == StopCause::request)
    broken(fmt::format("job {} starts again though it was stopped", e.job.value));
  if (!end)
    broken(fmt::format("job {} starts again though it succeeded", e.job.value));
  job.rerun_excused = true;
  if (job.stopping == StopCause::preempted || job.stopping == StopCause::moved)
    return;
  // A member that was asked to restart found no place, and the others were stopped for it.
  const bool restarts = std::any_of(job.tasks.begin(), job.tasks.end(),
                                    [&](TaskId id) { return restarting_.contains(id); });
  if (restarts && end->exit.kind == ExitKind::stopped)
    return;
  if (own_fault(end->exit) || end->exit.ok()) {
    if (++job.failures > job.spec->retries)
      broken(fmt::format("job {} is retried more often than the {} times asked for", e.job.value,
                         job.spec->retries));
  } else if (end->exit.kind == ExitKind::lost || end->exit.kind == ExitKind::unpaid) {
    if (!job.spec->rerun_if_lost && any_began(job))
      broken(fmt::format("job {} may not run twice, had begun, and starts again", e.job.value));
  } else {
    broken(fmt::format("job {} starts again after {}", e.job.value, enum_name(end->exit.kind)));
  }
}

void Audit::job_ended(const JobEnded& e) {
  JobStory& job = jobs_.at(e.job);
  if (!ends_.try_emplace(e.job, e.state).second)
    broken(fmt::format("job {} ended twice", e.job.value));
  --open_;
  promised_.erase(e.job);
  world_.trace("journal: job {} ended {}: {}", e.job.value, enum_name(e.state), e.reason);
  const bool ran = job.running || job.suspended;
  const TaskEnded* end = ran ? decisive(job) : nullptr;
  leave_running(job);
  const auto wrong = [&](const char* why) {
    broken(fmt::format("job {} ended {}, but {}", e.job.value, enum_name(e.state), why));
  };
  switch (e.state) {
    case JobState::succeeded:
      // An elastic gang may come to its end without a member it has lost.
      if (!ran || (end && !(job.spec->elastic && end->exit.kind == ExitKind::lost)))
        wrong("it did not");
      break;
    case JobState::failed:
      if (!end || (!own_fault(end->exit) && !end->exit.ok()))
        wrong("nothing of its own failed");
      if (e.exit != end->exit && !end->exit.ok())
        wrong("with another exit than its task's");
      if (job.failures != job.spec->retries)
        wrong(fmt::format("only {} of {} retries were used", job.failures, job.spec->retries)
                  .c_str());
      break;
    case JobState::lost:
      if (!end || end->exit.kind != ExitKind::lost)
        wrong("no task was lost");
      if (job.spec->rerun_if_lost && job.attempts <= limits::retries_max)
        wrong("it may start again");
      break;
    case JobState::stopped:
      if (ran && job.stopping != StopCause::request)
        wrong("nobody asked for it");
      break;
    case JobState::held:
    case JobState::queued:
    case JobState::running:
    case JobState::suspended:
      wrong("that is no end");
  }
  if (!job.array)
    return;
  ArrayStory& array = arrays_.at(job.array);
  if (e.state == JobState::succeeded)
    ++array.succeeded;
  if (--array.left > 0)
    return;
  ends_[job.array] = array.succeeded == array.count ? JobState::succeeded : JobState::failed;
  promised_.erase(job.array);
}

std::optional<JobState> Audit::end_of(JobId job) const {
  const auto found = ends_.find(job);
  return found == ends_.end() ? std::nullopt : std::optional(found->second);
}

void Audit::process_started(const std::shared_ptr<Process>& process) {
  read_journal();
  const auto found = tasks_.find(process->task);
  if (found == tasks_.end())
    broken(fmt::format("task {} runs, but the journal does not have it", process->task.value));
  TaskStory& story = found->second;
  if (story.process)
    broken(fmt::format("task {} was started twice", process->task.value));
  if (story.end && !story.given_up)
    broken(fmt::format("task {} starts after its end was recorded", process->task.value));
  story.process = process;
  if (node_names_.at(story.task.node) != process->node->name)
    broken(fmt::format("task {} runs on the wrong node", process->task.value));
  if (story.task.gpus != process->gpus || story.task.attempt != process->attempt ||
      story.task.job != process->job)
    broken(
        fmt::format("task {} runs with GPUs, an attempt or a job that the journal did not give it",
                    process->task.value));
  if (const std::size_t asked = jobs_.at(process->job).spec->surroundings.secrets.size();
      process->secrets != asked)
    broken(fmt::format("task {} runs with {} of the {} secrets it asked for", process->task.value,
                       process->secrets, asked));
  for (const TaskId id : jobs_.at(process->job).all_tasks) {
    const TaskStory& other = tasks_.at(id);
    if (id == process->task || !other.process)
      continue;
    const bool same_rank =
        other.task.attempt == process->attempt && other.task.rank == process->rank;
    const JobSpec& spec = *jobs_.at(process->job).spec;
    const bool replaceable = spec.elastic || !spec.roles.empty();
    if (same_rank && (other.process->alive || !replaceable))
      broken(fmt::format("rank {} of job {} runs twice", process->rank, process->job.value));
    if (other.process->alive && other.task.attempt != process->attempt)
      broken(
          fmt::format("job {} runs twice at once: task {} of attempt {} lives while task {} starts",
                      process->job.value, id.value, other.task.attempt, process->task.value));
  }
  check_gpus_fit(*process->node);
}

void Audit::process_resumes(const std::shared_ptr<Process>& process) {
  read_journal();
  const TaskStory& story = tasks_.at(process->task);
  if (story.given_up)
    return (void)(process->frozen = false);
  if (story.end || !jobs_.at(process->job).running)
    broken(fmt::format("task {} resumes, but the journal does not say so", process->task.value));
  process->frozen = false;
  check_gpus_fit(*process->node);
}

void Audit::check_gpus_fit(const SimNode& node) const {
  std::map<std::int32_t, std::int64_t> milli;
  for (const auto& [id, live] : node.live()) {
    if (live->frozen)
      continue;
    for (const GpuGrant& grant : live->gpus)
      if ((milli[grant.gpu] += grant.share.milli) > whole_gpu_milli)
        broken(
            fmt::format("processes hold more of GPU {} of {} than it has", grant.gpu, node.name));
  }
}

void Audit::submit_acknowledged(const std::string& key, JobId job) {
  read_journal();
  if (!jobs_.contains(job) && !arrays_.contains(job))
    broken(fmt::format("job {} was acknowledged and is not durable", job.value));
  if (key.empty())
    return;
  const auto [at, fresh] = acknowledged_.try_emplace(key, job);
  if (at->second != job)
    broken(fmt::format("the key {} was answered with job {} and with job {}", key, at->second.value,
                       job.value));
  if (!ends_.contains(job))
    promised_.insert(job);
}

void Audit::end_reported(JobId job, JobState state) {
  read_journal();
  if (end_of(job) != state)
    broken(fmt::format("the end of job {} was reported before it was durable", job.value));
}

// An agent that has accepted a head must refuse every head with a lower epoch, even after a crash
// of its own: the older head has been replaced without knowing it.
void Audit::head_accepted(const SimNode& node, Epoch epoch) {
  Epoch& highest = accepted_epochs_[node.name];
  if (epoch < highest)
    broken(fmt::format("{} accepts the head with epoch {} after the one with epoch {}", node.name,
                       epoch, highest));
  highest = epoch;
}

// A deposed head learns from the hello that another one has taken over.
void Audit::hello_sent(const SimNode& node, Epoch epoch_seen) const {
  const auto accepted = accepted_epochs_.find(node.name);
  if (accepted != accepted_epochs_.end() && epoch_seen < accepted->second)
    broken(fmt::format("{} accepted the head with epoch {} and says that it has seen only {}",
                       node.name, accepted->second, epoch_seen));
}

void Audit::head_restarted(const control::State& state) {
  read_journal();
  for (const auto& [name, story] : secrets_) {
    const bool kept = std::any_of(state.secrets.begin(), state.secrets.end(), [&](const auto& s) {
      return s.first.second == name && s.second.sealed == story.values.back();
    });
    if (kept == story.values.back().empty())
      broken(fmt::format("a restart changed secret {}", name));
  }
  for (const JobId job : promised_)
    if (!state.jobs.contains(job) && !state.arrays.contains(job))
      broken(fmt::format("acknowledged job {} was lost by a restart", job.value));
  const auto check_open = [&](const auto& jobs) {
    for (const auto& [id, job] : jobs)
      if (ends_.contains(id))
        broken(fmt::format("job {} has ended and lives again", id.value));
  };
  check_open(state.jobs);
  check_open(state.arrays);
}

void Audit::finish(const control::State& state) {
  read_journal();
  for (const auto& [id, task] : state.tasks)
    world_.trace("state: task {} of job {} on {} is {}", id.value, task.job.value,
                 node_names_[task.node], enum_name(task.state));
  for (const auto& [id, node] : state.nodes)
    world_.trace("state: node {} is {}{}, {} m free", node.offer.name,
                 node.reachable ? "reachable" : "unreachable",
                 node.drained.empty() ? "" : " and drained", state.index.free_milli(id));
  for (const auto& [id, job] : jobs_) {
    if (!ends_.contains(id)) {
      const Job* live = state.find_job(id);
      const bool queued = live && live->state == JobState::queued;
      broken(fmt::format("job {} has not ended: {} ({})", id.value,
                         live ? enum_name(live->state) : "unknown",
                         queued ? why_queued(state, id)
                         : live ? live->reason
                                : ""));
    }
    const auto row = world_.disk.jobs.find(id);
    if (row == world_.disk.jobs.end() || row->second.state != enum_name(ends_.at(id)))
      broken(fmt::format("the row of job {} does not say how it ended", id.value));
  }
  if (!state.jobs.empty() || !state.tasks.empty() || !state.arrays.empty())
    broken("the state keeps work that has ended");
  for (const auto& node : world_.nodes)
    if (!node->live().empty())
      broken(fmt::format("{} runs a process of a job that has ended", node->name));
  std::size_t kept = 0;
  for (const auto& [name, story] : secrets_)
    kept += !story.values.back().empty();
  if (kept != state.secrets.size())
    broken(fmt::format("the state has {} secrets, but the journal has {}", state.secrets.size(),
                       kept));
  for (const auto& [key, secret] : state.secrets)
    if (secrets_[key.second].values.back() != secret.sealed)
      broken(fmt::format("secret {} is not what the journal says", key.second));
  check_leases_apart();
  check_rented(state);
}

}  // namespace billow::sim
