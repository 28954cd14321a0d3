// How a head tells an agent that a job must run confined, because it was submitted with an agent
// token or with strict isolation: a variable of the start order with the Unix account of the job's
// user. The job itself does not see it. The order's own user is then a name that no machine has, so
// that an agent that does not know the variable refuses the job. Strict isolation has another name,
// so that an agent that would keep the job apart less strictly refuses it too.
#pragma once

#include <string>

#include "core/wire/agent_v1.h"

namespace billow::wire {

inline constexpr const char* confined_variable = "BILLOW_CONFINED_FOR";
inline constexpr const char* confined_user_name = "billow:confined";
inline constexpr const char* strict_user_name = "billow:strict";

// The account that the job is kept apart from; empty: the job is not confined.
inline std::string confined_for(const agent_v1::Start& start) {
  const auto found = start.env.find(confined_variable);
  const bool confined =
      start.unix_user == confined_user_name || start.unix_user == strict_user_name;
  return confined && found != start.env.end() ? found->second : "";
}
inline bool strict_isolation(const agent_v1::Start& start) {
  return start.unix_user == strict_user_name;
}

}  // namespace billow::wire
