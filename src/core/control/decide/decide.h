// From commands to facts. `decide` looks at the state without changing it and returns the events
// that a command leads to, or an error and no events. `react` returns the events that follow from
// an event (a gang's last task ends, so the job ends, so its dependents may start). The shell
// applies each event before it asks for the reactions to it, and writes all of them in one batch.
#pragma once

#include <string>
#include <vector>

#include "core/control/state.h"
#include "core/ledger/meter.h"
#include "core/wire/agent_v1.h"

namespace billow::control {

struct Context {
  WallTime now;
  WallTime billed;  // the same moment on the billing clock
  const ledger::PriceBook* prices = nullptr;
};

Result<std::vector<EventBody>> decide(const State& state,
                                      const Command& command,
                                      const Context& context);
std::vector<EventBody> react(const State& state, const EventBody& event, const Context& context);
// The events of a scheduler's plan: placements with their leases and prices, and orders to victims.
std::vector<EventBody> carry_out(const State& state,
                                 const sched::Plan& plan,
                                 const Context& context);

// A message to an agent because of an event; it may be sent only when the event is durable.
struct Effect {
  NodeId node;
  wire::agent_v1::ToAgent message;
};
std::vector<Effect> effects_of(const State& state, const Event& event);
// The messages to an agent after its hello (and the events decided from it), so that both sides
// agree again.
std::vector<Effect> hello_effects(const State& state,
                                  NodeId node,
                                  const std::vector<TaskStatus>& tasks);

// Whether a job can be suspended now; an error says why not. The first function answers for a job
// that has not started yet.
bool could_be_suspended(const JobSpec& spec);
Status suspendable(const State& state, const Job& job);

// The name of another job for the users of this one: "job 12" within the project, else "another
// project's job".
std::string other_job(const State& state, const Job& job, JobId other);

// Checks of a submission without submitting: `validate` the description, `admissible` against the
// hardware.
Status validate(const JobSpec& spec);
Status validate(const std::map<std::string, std::string>& env);
Status admissible(const State& state, const JobSpec& spec, ProjectId project = {});

// Whether a hello is accepted: its credential allows the name, and its offer is possible.
Status check_hello(const State& state, const AgentHello& hello);

// Whether a node's credential speaks for the node of this name.
bool speaks_for(const State& state, const Token& token, std::string_view node);
// The stored hash of a node's credential that is a key, which no hash of a secret can equal.
std::string node_key_hash(std::string_view public_key);

// What pools do for a waiting job, one sentence each; for `explain`.
std::vector<std::string> pool_notes(const State& state, const Job& job, WallTime now);
// What becomes of a machine of a pool whose agent does not answer, and how to end it now. Empty:
// the agent answers, or the machine is not in use.
std::string silent_note(const State& state, const Machine& machine);
// The same of one of its nodes.
std::string silent_note(const State& state, const Node& node);
// What was asked of providers while the job waited, in order, with their answers; then what was
// rented for it.
std::vector<std::string> order_notes(const State& state, const Job& job, WallTime now);

// The user that a token belongs to.
struct Principal {
  UserId user;
  std::string name;
  std::string role = roles::viewer;  // on the whole installation
  TokenScope scope = TokenScope::read;
  ProjectId project;  // for scopes submit and agent
  TokenId token;
  PoolId pool;             // for scope join
  TokenId agent;           // the token, if it is of scope agent; 0: not
  std::string token_name;  // for records of what it did
};
Result<Principal> authenticate(const State& state, std::string_view token_hash, WallTime now);
// The same for a token that was checked before: an error if it was revoked or has expired since.
Result<Principal> principal_of(const State& state, TokenId token, WallTime now);
// A browser's session is a token made from another one. Its stored hash begins with that token's
// number, so a secret sent as a token can never match a session's hash, nor the reverse.
std::string session_hash(TokenId parent, std::string_view hash);
std::optional<TokenId> session_parent(const Token& token);
// Whether the user started a head of this installation, and so has its rights anyway. 0: the head
// itself.
bool is_founder(const State& state, UserId user);
// Whether the user's jobs run as root on nodes that allow it.
bool runs_as_root(const User& user);
// Whether the user may submit jobs to the project.
bool may_submit(const State& state, const User& user, ProjectId project);
// The project with the lowest number that the user is a member of and may submit to; 0: none.
ProjectId first_project(const State& state, const User& user);
// Where submissions of the user go that name no project.
Result<ProjectId> default_project(const State& state, UserId user);

}  // namespace billow::control
