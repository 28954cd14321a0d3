// Approvals: dangerous actions of agent tokens wait for a person. An approval is for one request,
// named by its digest; the agent repeats that request once it is granted, and it is used up.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/enums.h"
#include "base/ids.h"

namespace billow {

enum class ApprovalAction {
  spend,       // a submission that may cost more than the token's limit for one job
  use_secret,  // a job that reads a secret
  stop_job,    // of a job that the token did not submit
  expose,      // an endpoint that others than programs on this machine can reach
  change_environment,
  remove_environment,
};
BILLOW_ENUM_NAMES(ApprovalAction,
                  {ApprovalAction::spend, "spend"},
                  {ApprovalAction::use_secret, "use-secret"},
                  {ApprovalAction::stop_job, "stop-job"},
                  {ApprovalAction::expose, "expose"},
                  {ApprovalAction::change_environment, "change-environment"},
                  {ApprovalAction::remove_environment, "remove-environment"});

// used: the agent has done it. expired: nobody decided, or the agent did not repeat its request.
enum class ApprovalState { pending, approved, denied, used, expired };
BILLOW_ENUM_NAMES(ApprovalState,
                  {ApprovalState::pending, "pending"},
                  {ApprovalState::approved, "approved"},
                  {ApprovalState::denied, "denied"},
                  {ApprovalState::used, "used"},
                  {ApprovalState::expired, "expired"});

struct Approval {
  std::uint64_t id = 0;
  TokenId token;
  std::string agent;  // the token's name
  UserId user;        // the token's owner
  ProjectId project;
  ApprovalAction action = ApprovalAction::spend;
  std::string text;    // for people: what will happen
  std::string digest;  // of the request
  WallTime asked_at;
  WallTime expires_at;
  ApprovalState state = ApprovalState::pending;
  std::string decided_by;
  WallTime decided_at;
  bool open() const { return state == ApprovalState::pending || state == ApprovalState::approved; }
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("token", s.token);
    v("agent", s.agent);
    v("user", s.user);
    v("project", s.project);
    v("action", s.action);
    v("text", s.text);
    v("digest", s.digest);
    v("asked_at_ns", s.asked_at);
    v("expires_at_ns", s.expires_at);
    v("state", s.state);
    v("decided_by", s.decided_by);
    v("decided_at_ns", s.decided_at);
  }
};

namespace limits {
inline constexpr Duration agent_token_life_default = hours(8);
inline constexpr Duration approval_life = hours(1);  // until somebody decides, and again until used
inline constexpr std::size_t approvals_open_max = 20;   // of one token
inline constexpr std::size_t approvals_kept_max = 500;  // decided ones, for the list
}  // namespace limits

}  // namespace billow
