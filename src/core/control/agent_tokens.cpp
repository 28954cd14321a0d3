#include "core/control/agent_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/money.h"

namespace billow::control {
namespace {

bool type_fits(const Resources& want, std::string_view type) {
  return want.gpu_types.empty() || std::ranges::find(want.gpu_types, type) != want.gpu_types.end();
}

// Of one card, at most: a share by memory is known only at its place.
std::int64_t card_milli(const Resources& want) {
  return want.share.mem_mib > 0 || !want.mig_profile.empty() ? whole_gpu_milli : want.share.milli;
}

std::int64_t task_milli(const Resources& want, std::size_t cards_of_node) {
  return want.takes_node() ? static_cast<std::int64_t>(cards_of_node) * whole_gpu_milli
                           : want.gpus * card_milli(want);
}

// The charge of one task per second, if it ran on this node.
std::int64_t token_rate_on(const State& state,
                           const JobSpec& spec,
                           const Node& node,
                           const Context& context) {
  std::int64_t dearest = 0;
  for (const NodeGpu& gpu : node.offer.gpus)
    if (type_fits(spec.resources, gpu.type))
      dearest = std::max(
          dearest, charge_rate(state, node, gpu.type,
                               spec.spot ? PriceClass::spot : PriceClass::on_demand, context.prices)
                       .nano_usd_per_s);
  return dearest * task_milli(spec.resources, node.offer.gpus.size()) / whole_gpu_milli;
}

// The same on machines that a pool could bring. A node's price is known when it has joined; until
// then the dearest offer counts.
std::int64_t rate_in(const State& state,
                     const JobSpec& spec,
                     const Pool& pool,
                     const Context& context) {
  const auto machine = [&](const std::string& type, std::int32_t gpus, Rate price) {
    if (gpus <= 0 || !type_fits(spec.resources, type))
      return std::int64_t{0};
    Node node;
    node.pool = pool.id;
    node.offer.gpus.assign(static_cast<std::size_t>(gpus), NodeGpu{});
    for (NodeGpu& gpu : node.offer.gpus)
      gpu.type = type;
    const std::int64_t by_offer = price.nano_usd_per_s / gpus *
                                  task_milli(spec.resources, node.offer.gpus.size()) /
                                  whole_gpu_milli;
    return std::max(by_offer, token_rate_on(state, spec, node, context));
  };
  std::int64_t dearest = machine(pool.gpu_type, pool.gpus, pool.price);
  for (const MachineOffer& offer : pool.offers)
    dearest = std::max(dearest, machine(offer.gpu_type, offer.gpus, offer.price));
  return dearest;
}

// The charge of one task per second at the dearest place where it could run.
Result<std::int64_t> dearest_rate(const State& state, const JobSpec& spec, const Context& context) {
  const Resources& want = spec.resources;
  if (want.gpus == 0 && !want.takes_node())
    return 0;
  if (const auto r = state.reservations.find(spec.reservation); r != state.reservations.end())
    return r->second.rate.nano_usd_per_s * task_milli(want, limits::gpus_per_node_max) /
           whole_gpu_milli;
  std::int64_t dearest = 0;
  for (const auto& [id, node] : state.nodes)
    dearest = std::max(dearest, token_rate_on(state, spec, node, context));
  Job asked;
  asked.spec = std::make_shared<const JobSpec>(spec);
  for (const auto& [id, pool] : state.pools)
    if (could_run(state, asked, pool))
      dearest = std::max(dearest, rate_in(state, spec, pool, context));
  if (dearest == 0 && context.prices)
    for (const std::string& type : want.gpu_types)
      dearest =
          std::max(dearest, context.prices->rate(type, PriceClass::on_demand).nano_usd_per_s *
                                task_milli(want, limits::gpus_per_node_max) / whole_gpu_milli);
  if (dearest == 0 && state.nodes.empty() && want.gpu_types.empty())
    return fail(Code::conflict, "no node has joined yet, so the price of a GPU is not known",
                "name the GPU type, or try again when a node has joined");
  return dearest;
}

NanoUsd cost_of(Rate rate, std::uint64_t jobs, Duration time) {
  constexpr __int128 most = std::numeric_limits<std::int64_t>::max() / 4;
  const __int128 sum = static_cast<__int128>(rate.nano_usd_per_s) * (time.ns / 1'000'000) / 1000 *
                       static_cast<__int128>(jobs);
  return {static_cast<std::int64_t>(std::min(most, sum))};
}

Result<const Token*> live_token(const State& state, TokenId id, WallTime now) {
  const auto found = state.tokens.find(id);
  if (found == state.tokens.end() || found->second.scope != TokenScope::agent)
    return fail(Code::forbidden, "the agent token that pays for this was revoked");
  const Token& token = found->second;
  if (token.expires_at && token.expires_at <= now)
    return fail(Code::forbidden,
                fmt::format("the agent token {} that pays for this has expired", token.name));
  return &token;
}

std::string gpus_text(std::int64_t milli) {
  return milli % 1000 == 0 ? fmt::format("{}", milli / 1000)
                           : fmt::format("{:.3g}", static_cast<double>(milli) / 1000);
}

Error too_dear(const Token& token, NanoUsd least, NanoUsd free, Rate rate, std::uint64_t jobs) {
  const Rate all{static_cast<std::int64_t>(
      std::min<__int128>(static_cast<__int128>(rate.nano_usd_per_s) * static_cast<__int128>(jobs),
                         std::numeric_limits<std::int64_t>::max() / 4))};
  // Beyond the limit of one job a person would have to be asked.
  const NanoUsd one_job = std::min(free, token.agent.per_job);
  const std::int64_t minutes = ledger::lasts(one_job, all).ns / billow::minutes(1).ns;
  return {Code::exhausted,
          fmt::format("agent token {} has {} of its {} left, but this may cost {} at {}",
                      token.name, format_usd(free), format_usd(token.agent.budget),
                      format_usd(least), format_rate_per_hour(all)),
          minutes > 0 ? fmt::format("--time {}m would fit; or use fewer GPUs", minutes)
                      : "wait for running jobs to end, which frees what they did not use; or ask a "
                        "person for another token"};
}

}  // namespace

std::int64_t gpu_milli_of(const JobSpec& spec) {
  std::int64_t milli = 0;
  for (const JobSpec& part : parts_of(spec))
    milli += task_milli(part.resources, 1) * static_cast<std::int64_t>(part.nodes);
  return milli;
}

Status check_agent_priority(const JobSpec& spec) {
  if (spec.priority > 0)
    return fail(Code::forbidden, "jobs of agent tokens cannot have a raised priority",
                "drop --priority");
  return {};
}

Result<Commitment> commitment(const State& state,
                              const AgentSubmission& s,
                              const Context& context) {
  const Token& token = *BILLOW_TRY(live_token(state, s.token, context.now));
  if (s.project != token.project)
    return fail(Code::forbidden,
                fmt::format("agent token {} works in another project", token.name));
  if (gpu_milli_of(s.spec) > token.agent.gpus_milli)
    return fail(Code::exhausted,
                fmt::format("agent token {} may hold at most {} GPUs; this needs {}", token.name,
                            gpus_text(token.agent.gpus_milli), gpus_text(gpu_milli_of(s.spec))),
                "use fewer GPUs");
  Commitment out{
      .amount = {}, .time_limit = s.spec.time_limit, .lead = s.spec.stop_grace + agent_stop_margin};
  const std::uint64_t jobs = s.spec.array ? s.spec.array->count() : 1;
  Rate rate;
  for (const JobSpec& part : parts_of(s.spec))
    rate.nano_usd_per_s +=
        BILLOW_TRY(dearest_rate(state, part, context)) * static_cast<std::int64_t>(part.nodes);
  if (rate.nano_usd_per_s == 0) {
    out.amount = {1};  // a place that costs something is more than it may use
    return out;
  }
  const auto uses = budget_uses(state, context.billed);
  const auto entry = state.money.budgets.find(token_budget(token.id));
  if (entry == state.money.budgets.end())
    return fail(Code::internal, fmt::format("agent token {} has no budget", token.name));
  const NanoUsd free{std::max<std::int64_t>(
      0, (ledger::uncommitted(entry->second.budget, uses.at(entry->first)) - s.taken).value)};
  const bool buys_time = out.time_limit.ns == 0;
  if (buys_time) {
    const NanoUsd most = std::min(free, token.agent.per_job);
    const NanoUsd second = cost_of(rate, jobs, seconds(1));
    const Duration lasts = seconds(most.value / std::max<std::int64_t>(1, second.value)) - out.lead;
    out.time_limit = Duration{lasts.ns / seconds(1).ns * seconds(1).ns};
    out.amount = most;
    if (out.time_limit < agent_run_min)
      return pass(too_dear(token, cost_of(rate, jobs, agent_run_min + out.lead), most, rate, jobs));
    return out;
  }
  const NanoUsd least = cost_of(rate, jobs, std::max(out.time_limit, out.lead + seconds(1)));
  if (least > free)
    return pass(too_dear(token, least, free, rate, jobs));
  out.beyond_per_job = least > token.agent.per_job;
  out.amount = std::min(free, cost_of(rate, jobs, out.time_limit + out.lead));
  if (!out.beyond_per_job)
    out.amount = std::min(out.amount, token.agent.per_job);
  return out;
}

std::string command_text(const JobSpec& spec) {
  constexpr std::size_t bytes_max = 200;
  const std::string command = shell_join(spec.argv);
  return command.size() <= bytes_max ? "[" + command + "]"
                                     : fmt::format("[{}… ({} bytes in all)]",
                                                   utf8_prefix(command, bytes_max), command.size());
}

std::optional<Approval> needs_approval(const State& state,
                                       TokenId id,
                                       const JobSpec& spec,
                                       const Commitment& limit) {
  const Token& token = state.tokens.at(id);
  std::string why;
  if (limit.beyond_per_job)
    why = fmt::format("it may cost {}, and the token's limit for one job is {}",
                      format_usd(limit.amount), format_usd(token.agent.per_job));
  std::set<std::string> secrets;
  each_options(spec, [&](const auto& options) {
    for (const std::string& name : secret_names(options.surroundings))
      secrets.insert(name);
  });
  for (const std::string& secret : secrets)
    why += fmt::format("{}it reads the secret {}", why.empty() ? "" : "; ", secret);
  if (why.empty())
    return std::nullopt;
  return Approval{
      .token = id,
      .agent = {},
      .user = {},
      .project = {},
      .action = limit.beyond_per_job ? ApprovalAction::spend : ApprovalAction::use_secret,
      .text =
          fmt::format("run {} on {} GPUs{}: {}", command_text(spec), gpus_text(gpu_milli_of(spec)),
                      spec.array ? fmt::format(", {} times", spec.array->count()) : "", why),
      .digest = {},
      .asked_at = {},
      .expires_at = {},
      .decided_by = {},
      .decided_at = {}};
}

const Approval* open_approval(const State& state, TokenId token, std::string_view digest) {
  for (const auto& [id, each] : state.approvals)
    if (each.open() && each.token == token && each.digest == digest)
      return &each;
  return nullptr;
}

Status limit_agent(const State& state, const CreateToken& c, Token& token) {
  if (session_parent(token))
    return fail(Code::forbidden, "an agent token cannot sign in to the dashboard",
                "sign in with a token of your own: billow dashboard");
  const AgentLimits& limits = c.agent;
  if (limits.budget.value <= 0)
    return fail(Code::invalid, "an agent token needs a budget above zero", "add --budget USD");
  if (limits.per_job.value <= 0 || limits.per_job > limits.budget)
    return fail(Code::invalid,
                fmt::format("the limit for one job must be above zero and at most the budget of {}",
                            format_usd(limits.budget)),
                "change --per-job");
  if (limits.gpus_milli < 0)
    return fail(Code::invalid, "--gpus of an agent token must not be negative", "use 0 or more");
  if (!token.expires_at)
    return fail(Code::invalid, "an agent token must expire", "add --expires 8h");
  if (const auto user = state.users.find(token.user);
      user == state.users.end() || !may_submit(state, user->second, token.project))
    return fail(Code::forbidden, fmt::format("user {} may not submit to this project", c.user));
  token.agent = limits;
  return {};
}

std::string used_up_text(const State& state, const Job& job, Rate rate) {
  const auto entry = state.money.budgets.find(
      {BudgetScope::job, (job.array ? job.array : job.id).value, BudgetPeriod::total});
  return fmt::format(
      "budget: what is left of its limit of {} does not pay for a run at {}",
      format_usd(entry == state.money.budgets.end() ? NanoUsd{} : entry->second.budget.limit),
      format_rate_per_hour(rate));
}

Status AgentGpus::take(const State& state, const Job& job, std::int64_t milli) {
  const auto token = state.tokens.find(job.agent);
  if (token == state.tokens.end() || milli == 0)
    return {};  // of a revoked token: its jobs are being stopped
  std::int64_t held = taken_[job.agent];
  if (const auto jobs = state.agent_jobs.find(job.agent); jobs != state.agent_jobs.end())
    for (const JobId id : jobs->second)
      for (const TaskId task : state.jobs.at(id).tasks)
        if (const Task& each = state.tasks.at(task); each.holds_gpus())
          held += ledger::gpu_milli(each);
  if (held + milli > token->second.agent.gpus_milli)
    return fail(Code::conflict,
                fmt::format("agent token {} may hold at most {} GPUs, and {} are in use",
                            token->second.name, gpus_text(token->second.agent.gpus_milli),
                            gpus_text(held)));
  taken_[job.agent] += milli;
  return {};
}

// ---- decisions

Result<std::optional<Commitment>> Decider::agent_limit(Events& events,
                                                       const SubmitJob& c,
                                                       const JobSpec& spec,
                                                       ProjectId project) const {
  BILLOW_TRY_VOID(check_agent_priority(spec));
  const Commitment limit = BILLOW_TRY(commitment(
      state, {.token = c.agent, .spec = spec, .project = project, .taken = {}}, context));
  if (auto ask = needs_approval(state, c.agent, spec, limit)) {
    ask->digest = c.digest;
    if (!BILLOW_TRY(approved(events, std::move(*ask))))
      return std::optional<Commitment>();
  }
  return std::optional(limit);
}

Result<std::optional<Commitment>> Decider::schedule_limit(const Schedule& schedule,
                                                          NanoUsd taken) const {
  if (!schedule.agent)
    return std::optional<Commitment>();
  const Commitment limit = BILLOW_TRY(commitment(state,
                                                 {.token = schedule.agent,
                                                  .spec = *schedule.spec,
                                                  .project = schedule.project,
                                                  .taken = taken},
                                                 context));
  if (limit.beyond_per_job)
    return fail(Code::forbidden, "it may cost more than its token allows for one job");
  return std::optional(limit);
}

void Decider::commit_events(Events& events,
                            JobId first,
                            TokenId agent,
                            const Commitment& commitment) {
  events.push_back(BudgetSet{{.scope = BudgetScope::job,
                              .of = first.value,
                              .period = BudgetPeriod::total,
                              .limit = commitment.amount,
                              .stops = true,
                              .grace = {},
                              .agent = agent,
                              .lead = commitment.lead},
                             {}});
}

Result<bool> Decider::approved(Events& events, Approval ask) const {
  const Token& token = *BILLOW_TRY(live_token(state, ask.token, context.now));
  if (const Approval* open = open_approval(state, ask.token, ask.digest);
      open && open->expires_at > context.now) {
    const bool granted = open->state == ApprovalState::approved;
    if (granted)
      events.push_back(ApprovalChanged{open->id, ApprovalState::used, "", open->expires_at});
    return granted;
  }
  std::size_t pending = 0;
  for (const auto& [id, each] : state.approvals)
    pending += each.open() && each.token == token.id;
  if (pending >= limits::approvals_open_max)
    return fail(
        Code::exhausted,
        fmt::format("{} requests of agent token {} already wait for a person", pending, token.name),
        "wait until they are decided: billow approvals list");
  ask.id = state.next_approval;
  ask.agent = token.name;
  ask.user = token.user;
  ask.project = token.project;
  ask.text = std::string(utf8_prefix(ask.text, limits::words_bytes_max));
  ask.asked_at = context.now;
  ask.expires_at = context.now + limits::approval_life;
  ask.state = ApprovalState::pending;
  events.push_back(ApprovalAsked{std::move(ask)});
  return false;
}

Decision Decider::operator()(const AskApproval& c) {
  Events events;
  BILLOW_TRY_VOID(approved(events, c.approval));
  return events;
}

Decision Decider::operator()(const DecideApproval& c) {
  const auto found = state.approvals.find(c.approval);
  if (found == state.approvals.end())
    return fail(Code::not_found, fmt::format("there is no approval {}", c.approval),
                "see `billow approvals list`");
  const Approval& approval = found->second;
  const bool undo = approval.state == ApprovalState::approved && c.to == ApprovalState::denied;
  if ((approval.state != ApprovalState::pending && !undo) || approval.expires_at <= context.now)
    return fail(Code::conflict,
                fmt::format("approval {} is already {}", c.approval,
                            approval.open() ? "expired" : enum_name(approval.state)),
                "the agent can ask again");
  return Events{ApprovalChanged{
      c.approval, c.to, c.by,
      c.to == ApprovalState::approved ? context.now + limits::approval_life : approval.expires_at}};
}

// Jobs of tokens that have ended, and requests that nobody has decided.
void Decider::tick_agents(Events& events) {
  for (const auto& [id, jobs] : state.agent_jobs) {
    const auto token = state.tokens.find(id);
    const bool revoked = token == state.tokens.end();
    const bool expired =
        !revoked && token->second.expires_at && token->second.expires_at <= context.now;
    if (!revoked && !(expired && !token->second.agent.keep_jobs))
      continue;
    const std::string reason =
        revoked ? "its agent token was revoked"
                : fmt::format("its agent token {} has expired", token->second.name);
    for (const JobId job : jobs)
      if (state.jobs.at(job).stopping != StopCause::request)
        stop_one(events, state.jobs.at(job), {job, reason, false});
  }
  for (const auto& [id, approval] : state.approvals)
    if (approval.open() && approval.expires_at <= context.now)
      events.push_back(ApprovalChanged{id, ApprovalState::expired, "", approval.expires_at});
}

// ---- folding

void Applier::operator()(const ApprovalAsked& e) {
  state.approvals[e.approval.id] = e.approval;
  state.next_approval = std::max(state.next_approval, e.approval.id + 1);
  // Open ones are limited by their number for each token; of the others the newest stay.
  std::size_t decided = static_cast<std::size_t>(
      std::ranges::count_if(state.approvals, [](const auto& each) { return !each.second.open(); }));
  for (auto at = state.approvals.begin();
       at != state.approvals.end() && decided > limits::approvals_kept_max;) {
    decided -= !at->second.open();
    at = at->second.open() ? std::next(at) : state.approvals.erase(at);
  }
}

void Applier::operator()(const ApprovalChanged& e) {
  const auto found = state.approvals.find(e.approval);
  if (found == state.approvals.end())
    return;
  found->second.state = e.state;
  found->second.expires_at = e.expires_at;
  if (e.by.empty())
    return;
  found->second.decided_by = e.by;
  found->second.decided_at = event.at;
}

}  // namespace billow::control
