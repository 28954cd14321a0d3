#include "audit.h"
#include "head.h"

namespace billow::sim {

namespace {
constexpr const char* secret_names[] = {"TOKEN", "KEY"};
constexpr std::size_t chosen_among = 16;
}  // namespace

Clients::Clients(World& world) : world_(world) {
  const std::int64_t count = world.rng.between(3, 14);
  for (std::int64_t i = 0; i < count; ++i)
    wishes_.emplace_back();
}

void Clients::wish(std::size_t jobs) {
  wishes_.resize(wishes_.size() + jobs);
}

// One of those that people still think of.
JobId Clients::some_job() const {
  const std::size_t among =
      world_.is_long() ? std::min(known_.size(), chosen_among) : known_.size();
  return known_[known_.size() - among + world_.rng.below(among)];
}

// Of long runs, which choose among the newest jobs only.
void Clients::forget_ended() {
  if (known_.size() <= chosen_among)
    return;
  const auto newest = known_.end() - static_cast<std::ptrdiff_t>(chosen_among);
  known_.erase(std::remove_if(known_.begin(), newest,
                              [&](JobId job) { return world_.audit->end_of(job).has_value(); }),
               newest);
}

namespace {

// Read by SimNode::start_task.
std::vector<std::string> draw_argv(Rng& rng) {
  const bool hangs = rng.chance(0.08);
  const std::int64_t runs_ms = hangs              ? -1
                               : rng.chance(0.75) ? rng.between(1, 4000)
                                                  : rng.between(4000, 60000);
  const bool fails = rng.chance(0.35), by_signal = rng.chance(0.4);
  const std::int64_t fails_first = fails ? (rng.chance(0.5) ? -1 : rng.between(1, 2)) : 0;
  return {"sim",
          fmt::format("{}", runs_ms),
          fmt::format("{}", by_signal ? 0 : rng.between(1, 99)),
          fmt::format("{}", by_signal ? 11 : 0),
          fmt::format("{}", fails_first),
          fmt::format("{}", rng.chance(0.2) ? -1 : rng.between(0, 1500))};
}

void draw_resources(Rng& rng, Resources& r) {
  const double kind = rng.unit();
  if (kind < 0.15)
    r.cpu_milli = rng.between(100, 4000);
  else if (kind < 0.4) {
    r.gpus = 1;
    r.share.milli = static_cast<std::int32_t>(rng.between(1, 3)) * 250;
  } else {
    r.gpus = static_cast<std::int32_t>(kind < 0.8 ? 1 : rng.between(1, 4));
    r.share.milli = whole_gpu_milli;
  }
}

}  // namespace

SubmitJob Clients::draw_job(std::size_t index) {
  Rng& rng = world_.rng;
  SubmitJob submit;
  JobSpec& spec = submit.spec;
  submit.user = UserId(1);
  if (rng.chance(0.7))
    submit.idempotency_key = fmt::format("k{}", index);
  spec.argv = draw_argv(rng);
  draw_resources(rng, spec.resources);
  if (rng.chance(0.2))
    spec.nodes = static_cast<std::uint32_t>(rng.between(2, 3));
  else if (rng.chance(0.2)) {
    spec.array =
        ArraySpec{.first = 0, .last = static_cast<std::uint64_t>(rng.between(1, 5)), .step = 1};
    if (rng.chance(0.5))
      spec.array->running_max = static_cast<std::uint64_t>(rng.between(1, 2));
  }
  spec.retries = rng.chance(0.4) ? static_cast<std::uint32_t>(rng.between(1, 3)) : 0;
  spec.retry_backoff = milliseconds(rng.between(0, 3000));
  spec.rerun_if_lost = rng.chance(0.4);
  spec.spot = rng.chance(0.25);
  spec.priority = static_cast<std::int32_t>(rng.between(-2, 2));
  spec.stop_grace =
      milliseconds(rng.chance(0.2) ? rng.between(10'000, 120'000) : rng.between(0, 10'000));
  if (spec.nodes > 1 && rng.chance(0.5))
    spec.elastic = spec.rerun_if_lost = true;
  if (const SimHead* head = world_.head(); head && !spec.spot && rng.chance(0.3)) {
    const auto& reservations = head->engine->state().reservations;
    if (!reservations.empty())
      spec.reservation = std::next(reservations.begin(),
                                   static_cast<std::ptrdiff_t>(rng.below(reservations.size())))
                             ->first;
  }
  if (rng.chance(0.2))
    spec.surroundings.image = "sim/image:1";
  if (rng.chance(0.15))
    spec.time_limit = milliseconds(rng.between(500, 30'000));
  if (!known_.empty() && rng.chance(0.25)) {
    const auto kinds = {AfterKind::ok, AfterKind::any, AfterKind::failed};
    spec.after.push_back({some_job(), *(kinds.begin() + rng.below(3))});
  }
  if (world_.with_secrets() && rng.chance(0.25)) {
    const std::string name = secret_names[rng.below(std::size(secret_names))];
    spec.surroundings.secrets.push_back({.name = name, .variable = name, .file = ""});
  }
  if (rng.chance(0.3))
    submit.env = {{"SEED", fmt::format("{}", rng.below(3))}};
  if (!spec.array && rng.chance(0.15))
    draw_roles(spec);
  return submit;
}

// The job becomes a group: its command and resources are those of the first role.
void Clients::draw_roles(JobSpec& spec) {
  Rng& rng = world_.rng;
  spec.nodes = 1;
  spec.elastic = false;
  spec.reservation = {};
  for (std::int64_t n = 0, roles = rng.between(1, 3); n < roles; ++n) {
    RoleSpec role;
    static_cast<TaskOptions&>(role) = spec;
    role.name = fmt::format("role-{}", n);
    role.count = static_cast<std::uint32_t>(rng.between(1, 2));
    role.resources = spec.resources;
    if (n > 0) {
      role.resources = {};
      role.resources.gpus = static_cast<std::int32_t>(rng.below(2));
      role.resources.share.milli =
          role.resources.gpus == 0 ? 0 : static_cast<std::int32_t>(rng.between(1, 4)) * 250;
      role.service = rng.chance(0.3);
      role.env = {{"ROLE", role.name}};
    }
    role.retries = rng.chance(0.5) ? static_cast<std::uint32_t>(rng.between(1, 2)) : 0;
    spec.roles.push_back(std::move(role));
  }
}

void Clients::submit(std::size_t index) {
  Wish& wish = wishes_[index];
  if (wish.done)
    return;
  const auto again = [this, index] {
    world_.after(world_.some(seconds(1), seconds(4)), [this, index] { submit(index); });
  };
  SimHead* head = world_.head();
  if (!head || !head->accepting_work())
    return again();
  SubmitJob command = wish.command;
  for (const Dependency& d : command.spec.after)
    if (const auto row = world_.disk.jobs.find(d.job); row != world_.disk.jobs.end())
      command.finished[d.job] = *enum_value<JobState>(row->second.state);
  if (!head->engine->state().reservations.contains(command.spec.reservation))
    command.spec.reservation = {};  // it is over: people go without
  const std::string key = command.idempotency_key;
  if (key.empty())
    wish.done = true;  // without a key nobody can ask again
  else
    again();  // unless an answer comes first
  head->execute(command, [this, index, key, head](Result<std::vector<Event>> events) {
    Wish& mine = wishes_[index];
    if (!events) {
      // A dependency whose end is not durable yet is not found; it will be.
      if (events.error().code != Code::not_found)
        mine.done = true;
      return;
    }
    JobId job;
    for (const Event& event : *events)
      if (const auto* e = get_if<JobsSubmitted>(&event.body))
        job = e->first;
    if (!job)
      job = head->engine->state().job_by_key.at("ana:" + key);
    world_.audit->submit_acknowledged(key, job);
    if (world_.fault(world_.faults.reply_lost))
      return;
    if (!mine.done || key.empty()) {
      known_.push_back(job);
      watch(job);
    }
    mine.done = true;
  });
  if (world_.mutation == Mutation::ack_before_durable && !key.empty() && head->alive &&
      !head->dying) {
    const auto& keys = head->engine->state().job_by_key;
    if (const auto found = keys.find("ana:" + key); found != keys.end())
      world_.audit->submit_acknowledged(key, found->second);
  }
}

void Clients::watch(JobId job) {
  if (SimHead* head = world_.head())
    watches_.push_back(head->engine->watch_job(job, [this](const Event& event) {
      if (const auto* e = get_if<JobEnded>(&event.body))
        world_.audit->end_reported(e->job, e->state);
    }));
}

void Clients::command(const Command& command) {
  SimHead* head = world_.head();
  if (!head || head->dying)
    return;
  const auto* set = get_if<SetSecret>(&command);
  const auto* remove = get_if<RemoveSecret>(&command);
  if (!set && !remove)
    return head->execute(command, {});
  const std::string name = set ? set->name : remove->name, value = set ? set->sealed : "";
  world_.audit->secret_wished(name, value);
  head->execute(command, [this, name, value](Result<std::vector<Event>> done) {
    if (done && !world_.fault(world_.faults.reply_lost))
      world_.audit->secret_told(name, value);
  });
}

Command Clients::set_secret(const std::string& name) {
  return SetSecret{.project = "default",
                   .user = UserId(1),
                   .name = name,
                   .sealed = fmt::format("{}-{}", name, ++secret_values_)};
}

void Clients::every_second() {
  SimHead* head = world_.head();
  if (!head)
    return;
  if (watched_epoch_ != head->journal.epoch()) {
    watched_epoch_ = head->journal.epoch();
    watches_.clear();
    if (world_.is_long())
      forget_ended();
    for (JobId job : known_)
      if (!world_.audit->end_of(job))
        watch(job);
  }
  Rng& rng = world_.rng;
  while (next_ < wishes_.size() && (world_.calm || rng.chance(0.35))) {
    wishes_[next_].command = draw_job(next_);
    ++world_.counts.jobs;
    submit(next_++);
  }
  head = world_.head();
  if (!head)
    return;  // a submission met its crash
  std::vector<Command> commands;
  if (world_.calm)
    settle(head->engine->state(), commands);
  else
    trouble(head->engine->state(), commands);
  for (const Command& c : commands)
    command(c);
}

void Clients::trouble(const control::State& state, std::vector<Command>& commands) {
  Rng& rng = world_.rng;
  if (!known_.empty() && rng.chance(0.04))
    commands.push_back(StopJob{some_job(), "", rng.chance(0.3)});
  if (!known_.empty() && rng.chance(0.12))
    commands.push_back(SuspendJob{.job = some_job(),
                                  .mode = rng.chance(0.5) ? SuspendMode::warm : SuspendMode::cold});
  if (!known_.empty() && rng.chance(0.08))
    commands.push_back(RestartRole{some_job(), fmt::format("role-{}", rng.below(3)), ""});
  if (!known_.empty() && rng.chance(0.12))
    commands.push_back(ResumeJob{some_job(), rng.chance(0.3)});
  if (!state.nodes.empty() && rng.chance(0.02))
    commands.push_back(
        DrainNode{NodeId(1 + rng.below(state.next_node - 1)), rng.chance(0.5) ? "service" : ""});
  if (!state.nodes.empty() && rng.chance(0.02))
    commands.push_back(DrainGpu{NodeId(1 + rng.below(state.next_node - 1)), 0,
                                rng.chance(0.5) ? "XID 79" : "",
                                rng.chance(0.5) ? state.at : WallTime{}});
  // As a node says it of a task that it makes a room for; also of one that has ended meanwhile,
  // or needs none.
  for (const auto& [id, task] : state.tasks)
    if (rng.chance(0.02))
      commands.push_back(ImageFound{id, fmt::format("sha256:{:064x}", rng.below(4))});
  share(commands);
}

void Clients::settle(const control::State& state, std::vector<Command>& commands) {
  share_nothing(commands);
  for (const auto& [id, node] : state.nodes) {
    if (!node.drained.empty())
      commands.push_back(DrainNode{id, ""});
    for (const GpuMark& mark : node.gpu_marks)
      if (!mark.drained.empty())
        commands.push_back(DrainGpu{id, mark.gpu, "", {}});
    const bool gone = std::any_of(world_.nodes.begin(), world_.nodes.end(), [&](const auto& n) {
      return n->gone && !n->is_rented() && n->name == node.offer.name;
    });
    if (gone && !node.reachable && world_.now_ns - quiet_since_ns_ > minutes(4).ns)
      commands.push_back(RemoveNode{id});
  }
  for (const auto& [id, job] : state.jobs)
    if (job.state == JobState::suspended && !job.suspension.resume_wanted &&
        job.stopping == StopCause::none)
      commands.push_back(ResumeJob{id});
  // What waits inside a reservation that is over does not start unless somebody says that it may.
  for (const auto& [id, job] : state.jobs)
    if (job.spec->reservation && !job.left_reservation &&
        !state.reservations.contains(job.spec->reservation) && job.state != JobState::running)
      commands.push_back(ResumeJob{id, true});
  for (const auto& [id, job] : state.jobs)
    if (job.spec->argv.at(1) == "-1" && job.stopping != StopCause::request &&
        world_.now_ns - quiet_since_ns_ > seconds(30).ns)
      commands.push_back(StopJob{id, "", false});
}

void Clients::share(std::vector<Command>& commands) {
  Rng& rng = world_.rng;
  const control::State& state = world_.head()->engine->state();
  if (rng.chance(0.04)) {
    Reserve r;
    r.user = UserId(1);
    r.project = "default";
    r.resources.gpus = static_cast<std::int32_t>(rng.between(1, 3));
    r.resources.share.milli = whole_gpu_milli;
    if (rng.chance(0.2))
      r.nodes = 2;
    r.from = state.at + milliseconds(rng.between(1'000, 60'000));
    r.until = r.from + milliseconds(rng.between(61'000, 180'000));
    commands.push_back(r);
  }
  for (const char* name : secret_names) {
    if (!world_.with_secrets())
      break;
    if (rng.chance(0.05))
      commands.push_back(set_secret(name));
    else if (rng.chance(0.02))
      commands.push_back(RemoveSecret{.project = "default", .user = UserId(1), .name = name});
  }
  if (!state.reservations.empty() && rng.chance(0.03))
    commands.push_back(CancelReservation{
        std::next(state.reservations.begin(),
                  static_cast<std::ptrdiff_t>(rng.below(state.reservations.size())))
            ->first,
        ""});
  if (rng.chance(0.04)) {
    SetProject p{.name = "default",
                 .weight = {},
                 .guaranteed_milli = {},
                 .limit_milli = {},
                 .user_limit_milli = {},
                 .user_running_max = {},
                 .may_borrow = {},
                 .policy = {},
                 .regions = {},
                 .pools = {}};
    const auto policies = {OrderPolicy::fair, OrderPolicy::shortest, OrderPolicy::fifo};
    if (rng.chance(0.5))
      p.policy = *(policies.begin() + rng.below(3));
    if (rng.chance(0.3))
      p.limit_milli = rng.chance(0.5) ? -1 : rng.between(1, 6) * 1000;
    if (rng.chance(0.3))
      p.user_running_max = rng.chance(0.5) ? -1 : static_cast<std::int32_t>(rng.between(1, 4));
    if (rng.chance(0.3))
      p.guaranteed_milli = rng.between(0, 2) * 1000;
    if (rng.chance(0.2))
      p.may_borrow = rng.chance(0.7);
    commands.push_back(std::move(p));
  }
}

// What would keep work from ending is lifted, and what it asks for is there.
void Clients::share_nothing(std::vector<Command>& commands) {
  const control::State& state = world_.head()->engine->state();
  for (const char* name : secret_names)
    if (world_.with_secrets() &&
        std::none_of(state.secrets.begin(), state.secrets.end(),
                     [&](const auto& s) { return s.first.second == name; }))
      commands.push_back(set_secret(name));
  for (const auto& [id, r] : state.reservations)
    commands.push_back(CancelReservation{id, "the quiet"});
  const Project* project = state.project_by_name("default");
  if (!project || project->quota == Quota{})
    return;
  SetProject p{.name = "default",
               .weight = {},
               .guaranteed_milli = 0,
               .limit_milli = -1,
               .user_limit_milli = -1,
               .user_running_max = -1,
               .may_borrow = true,
               .policy = OrderPolicy::fair,
               .regions = {},
               .pools = {}};
  commands.push_back(std::move(p));
}

void Clients::settle_down() {
  quiet_since_ns_ = world_.now_ns;
}

bool Clients::all_done() const {
  if (next_ < wishes_.size() || !world_.audit->all_ended())
    return false;
  while (open_ < wishes_.size() && wishes_[open_].done)
    ++open_;
  if (open_ < wishes_.size())
    return false;
  // The audit knows what is durable; a job that is on its way there is not yet one of its.
  const SimHead* head = world_.head();
  return head && head->engine->state().seq == head->journal.durable_seq() &&
         head->engine->state().jobs.empty();
}

// What waits for hardware that is gone for good may wait; anything else should have ended by now.
void Clients::stop_infeasible() {
  SimHead* head = world_.head();
  if (!head)
    broken("no head is up");
  const control::State& state = head->engine->state();
  std::vector<JobId> hopeless;
  for (const auto& [id, job] : state.jobs)
    if (job.state == JobState::queued &&
        (state.nodes.empty() || !sched::feasible(state.index, control::request_of(state, job))))
      hopeless.push_back(id);
  for (JobId id : hopeless)
    command(StopJob{id, "no such hardware any more", false});
}

}  // namespace billow::sim
