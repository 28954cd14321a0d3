// Which tokens a route takes. The table of routes (api.cpp) names one Need for each, and this is
// the only place that says what it means; a route itself asks for no scope, only what the caller is
// to the thing it names (a job's owner, a project's admin).
#pragma once

#include "core/control/decide/decide.h"

namespace billow::api {

// Who may call a route. The route itself may ask for more (a job's project).
enum class Need {
  nothing,  // no token
  look,     // any token but a node's
  work,     // a token that may submit and steer jobs: scopes submit and full
  full,     // a full token: what decides for others, or over money, or makes further tokens, is not
            // for one that was given away for less
  oversee,  // of an admin of the whole installation, to look: scopes read and full
  admin,    // of an admin of the whole installation, full
  node,     // an agent's credential
  join,     // a join token
  files,    // whoever may work, and nodes
};

// Whether a route writes down something new, which is refused while there is no room for it. What
// ends, frees or limits something is always taken, and so is what running work needs.
enum class Adds { nothing, work };

Status allowed(const control::Principal& who, Need need);

// The rights of a stream that stays open are looked at again this often.
inline constexpr Duration rights_every = seconds(2);

}  // namespace billow::api
