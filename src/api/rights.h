// Which tokens a route accepts. The table of routes (api.cpp) names for each route one Need, whose
// meaning only this file knows, and the permissions (control/decide/permissions.h) of which the
// caller's role must include one. Routes themselves never look at scopes or names of roles, only at
// permissions and at what is the caller's own.
#pragma once

#include "core/control/decide/permissions.h"

namespace billow::api {

// Who may call a route. The route may ask for more (membership of a job's project).
enum class Need {
  nothing,  // no token
  look,     // any person's token: not a node's, a gateway's or one to join with
  work,     // a token that may submit and steer jobs: scopes submit and full
  full,     // a full token: for decisions about others or money, and for creating tokens
  node,     // an agent's credential
  join,     // a join token
  files,    // like work, and nodes
  gateway,  // a gateway's token, or a full token
  machine,  // an agent's credential or a gateway's token, with or without a certificate
};

// Whether a route adds something, which is refused while the disk is full. Requests that end, free
// or limit something are always accepted, and so is what running work needs.
enum class Adds { nothing, work };

Status allowed(const control::Principal& who, Need need);

// How often the rights of a stream that stays open are checked again.
inline constexpr Duration rights_every = seconds(2);

}  // namespace billow::api
