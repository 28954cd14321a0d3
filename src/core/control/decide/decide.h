// From a wish to facts. `decide` looks at the state, never changes it, and answers with the events
// that the wish comes to, or with an error and no events. `react` gives the events that an event
// itself brings about (a gang's last task ends, so the job does, so its dependents may start). The
// shell applies each event before it asks for the reactions to it, and writes all of them in one
// batch.
#pragma once

#include <string>
#include <vector>

#include "core/control/state.h"
#include "core/ledger/meter.h"
#include "core/wire/agent_v1.h"

namespace billow::control {

struct Context {
  WallTime now;
  WallTime billed;  // the same moment by the clock of bills
  const ledger::PriceBook* prices = nullptr;
};

Result<std::vector<EventBody>> decide(const State& state,
                                      const Command& command,
                                      const Context& context);
std::vector<EventBody> react(const State& state, const EventBody& event, const Context& context);
// What the scheduler's plan comes to: placements with their leases and prices, and victims told to
// leave.
std::vector<EventBody> carry_out(const State& state,
                                 const sched::Plan& plan,
                                 const Context& context);

// What must be said to agents because of an event, and may leave only when the event is durable.
struct Effect {
  NodeId node;
  wire::agent_v1::ToAgent message;
};
std::vector<Effect> effects_of(const State& state, const Event& event);
// What an agent must be told after its hello (and the events decided from it) so that both sides
// agree again.
std::vector<Effect> hello_effects(const State& state,
                                  NodeId node,
                                  const std::vector<TaskStatus>& tasks);

// Whether a job can be suspended now; an error says why not. The first is what is known of a job
// that has not started yet.
bool could_be_suspended(const JobSpec& spec);
Status suspendable(const State& state, const Job& job);

// Another job as the people of this one may know it: "job 12" within a project, "another project's
// job" beyond it.
std::string other_job(const State& state, const Job& job, JobId other);
// How far those who are no admins of the installation may raise or lower the priority of their
// jobs: it counts between projects too.
inline constexpr std::int32_t priority_members_max = 1000;

// What a submission comes to, without submitting: errors of the request, and of the hardware
// ("infeasible: …").
Status validate(const JobSpec& spec);
Status validate(const std::map<std::string, std::string>& env);
Status admissible(const State& state, const JobSpec& spec, ProjectId project = {});

// Whether a hello may be believed: its credential speaks for that name, and what it offers can be.
Status check_hello(const State& state, const AgentHello& hello);

// What pools have to say about a job that waits, a sentence each; for `explain`.
std::vector<std::string> pool_notes(const State& state, const Job& job, WallTime now);

// Who a token speaks for.
struct Principal {
  UserId user;
  std::string name;
  Role role = Role::viewer;  // on the whole installation
  TokenScope scope = TokenScope::read;
  ProjectId project;  // for scope submit
  TokenId token;
  PoolId pool;  // for scope join
};
Result<Principal> authenticate(const State& state, std::string_view token_hash, WallTime now);
// The same for a token that was shown before: an error when it was revoked or has expired since.
Result<Principal> principal_of(const State& state, TokenId token, WallTime now);
// A browser's session is a token that came from another one, and what is kept of it says from
// which: its hash stands behind that token's number. No secret that is sent as a token can have
// such a hash, and no session's value one without.
std::string session_hash(TokenId parent, std::string_view hash);
std::optional<TokenId> session_parent(const Token& token);
// The role a principal has in a project: the installation's admins have theirs everywhere, others
// what their membership says.
std::optional<Role> role_in(const State& state, const Principal& principal, ProjectId project);

}  // namespace billow::control
