// Tokens of scope agent: what a program may do that acts for a person. What its jobs may cost is
// set aside from the token's budget when they are submitted, as a hard limit of each submission, so
// that the sum of what they cost and may still cost never exceeds the budget. Dangerous actions
// wait for a person's approval.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/control/state.h"

namespace billow::control {

struct Context;

// Between the order to stop an agent's job and the end of its money, besides the job's own grace:
// one interval of the head's checks, and the way to the node.
inline constexpr Duration agent_stop_margin = seconds(5);
// The shortest run that is bought for a job without a time limit.
inline constexpr Duration agent_run_min = minutes(1);

inline BudgetKey token_budget(TokenId token) {
  return {BudgetScope::token, token.value, BudgetPeriod::total};
}

// The GPUs of all tasks of one job, in thousandths, at most.
std::int64_t gpu_milli_of(const JobSpec& spec);

Status check_agent_priority(const JobSpec& spec);

struct AgentSubmission {
  TokenId token;
  const JobSpec& spec;  // an array counts as one submission
  ProjectId project;
  NanoUsd taken;  // from the token's budget by decisions that are not in the state yet
};
// The hard limit of one submission.
struct Commitment {
  NanoUsd amount;
  Duration time_limit;  // of each of its jobs; 0: none, because it costs nothing
  Duration lead;
  bool beyond_per_job = false;
};
// What the submission may cost at most, at the highest price it could be placed at. An error says
// which limit of the token is too low, and what would fit.
Result<Commitment> commitment(const State& state,
                              const AgentSubmission& submission,
                              const Context& context);
// A command as somebody who approves it must see it: quoted, so that its words cannot pass for
// ours, and with a mark where it is cut.
std::string command_text(const JobSpec& spec);
// What a person must be asked before this may run; nothing if it is within the token's limits.
std::optional<Approval> needs_approval(const State& state,
                                       TokenId token,
                                       const JobSpec& spec,
                                       const Commitment& limit);
// The approval of this request that waits for a person, or was granted and not used.
const Approval* open_approval(const State& state, TokenId token, std::string_view digest);

// Sets and checks the limits of a new token of scope agent.
Status limit_agent(const State& state, const CreateToken& c, Token& token);

std::string used_up_text(const State& state, const Job& job, Rate rate);

// How many GPUs the jobs of each token hold, including those of decisions in progress.
class AgentGpus {
 public:
  Status take(const State& state, const Job& job, std::int64_t milli);
  void put_back(const Job& job, std::int64_t milli) { taken_[job.agent] -= milli; }

 private:
  std::map<TokenId, std::int64_t> taken_;
};

}  // namespace billow::control
