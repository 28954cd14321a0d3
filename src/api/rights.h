// Which tokens a route accepts. The table of routes (api.cpp) names one Need for each route, and
// only this file says what it means. Routes themselves never look at scopes, only at what the
// caller is to the resource (a job's owner, a project's admin).
#pragma once

#include "core/control/decide/decide.h"

namespace billow::api {

// Who may call a route. The route may ask for more (membership of a job's project).
enum class Need {
  nothing,  // no token
  look,     // any person's token: not a node's, a gateway's or one to join with
  work,     // a token that may submit and steer jobs: scopes submit and full
  full,     // a full token: for decisions about others or money, and for creating tokens
  oversee,  // an installation admin's token that may read: scopes read and full
  admin,    // an installation admin's full token
  node,     // an agent's credential
  join,     // a join token
  files,    // like work, and nodes
  gateway,  // a gateway's token, or an installation admin's full token
};

// Whether a route adds something, which is refused while the disk is full. Requests that end, free
// or limit something are always accepted, and so is what running work needs.
enum class Adds { nothing, work };

Status allowed(const control::Principal& who, Need need);

// How often the rights of a stream that stays open are checked again.
inline constexpr Duration rights_every = seconds(2);

}  // namespace billow::api
