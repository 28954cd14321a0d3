// How a head tells an agent that a job was submitted with an agent token and must run confined: a
// variable of the start order with the Unix account of the token's user. The job itself does not
// see it. The order's own user is then a name that no machine has, so that an agent that does not
// know the variable refuses the job.
#pragma once

#include <string>

#include "core/wire/agent_v1.h"

namespace billow::wire {

inline constexpr const char* confined_variable = "BILLOW_CONFINED_FOR";
inline constexpr const char* confined_user_name = "billow:confined";

// The account that the job is kept apart from; empty: the job is not confined.
inline std::string confined_for(const agent_v1::Start& start) {
  const auto found = start.env.find(confined_variable);
  return start.unix_user == confined_user_name && found != start.env.end() ? found->second : "";
}

}  // namespace billow::wire
