// What users may do. A role is a list of permissions: some are built in
// (control/decide/permissions.h), others are made by admins. A user has one role on the
// installation and one in each project.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/ids.h"

namespace billow {

enum class Permission {
  // Of a project; on the installation: of all projects.
  jobs_read,
  jobs_run,
  jobs_any,
  endpoints_deploy,
  reservations_make,
  secrets_read,
  secrets_set,
  money_read,
  money_set,
  members_change,
  // Of the installation.
  audit_read,
  users_read,
  users_change,
  logins_change,
  projects_change,
  environments_publish,
  volumes_change,
  nodes_drain,
  nodes_change,
  pools_change,
  prices_set,
  backends_change,
  head_control,
};
BILLOW_ENUM_NAMES(Permission,
                  {Permission::jobs_read, "jobs.read"},
                  {Permission::jobs_run, "jobs.run"},
                  {Permission::jobs_any, "jobs.any"},
                  {Permission::endpoints_deploy, "endpoints.deploy"},
                  {Permission::reservations_make, "reservations.make"},
                  {Permission::secrets_read, "secrets.read"},
                  {Permission::secrets_set, "secrets.set"},
                  {Permission::money_read, "money.read"},
                  {Permission::money_set, "money.set"},
                  {Permission::members_change, "members.change"},
                  {Permission::audit_read, "audit.read"},
                  {Permission::users_read, "users.read"},
                  {Permission::users_change, "users.change"},
                  {Permission::logins_change, "logins.change"},
                  {Permission::projects_change, "projects.change"},
                  {Permission::environments_publish, "environments.publish"},
                  {Permission::volumes_change, "volumes.change"},
                  {Permission::nodes_drain, "nodes.drain"},
                  {Permission::nodes_change, "nodes.change"},
                  {Permission::pools_change, "pools.change"},
                  {Permission::prices_set, "prices.set"},
                  {Permission::backends_change, "backends.change"},
                  {Permission::head_control, "head.control"});

// Names of built-in roles, as they are stored.
namespace roles {
inline constexpr const char* viewer = "viewer";
inline constexpr const char* member = "member";
inline constexpr const char* operate = "operator";
inline constexpr const char* auditor = "auditor";
inline constexpr const char* admin = "admin";
}  // namespace roles

// A role that an admin has made.
struct CustomRole {
  std::string name;
  std::vector<Permission> allow;
  std::string by;  // who set it last
  WallTime at;
  bool operator==(const CustomRole&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("allow", s.allow);
    v("by", s.by);
    v("at_ns", s.at);
  }
};

// ---- events
struct RoleSet {
  static constexpr const char* kind = "role_set";
  CustomRole role;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("role", s.role);
  }
};
struct RoleRemoved {
  static constexpr const char* kind = "role_removed";
  std::string name;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
  }
};
// A token has a new secret; the old one is accepted until `previous_until`.
struct TokenRotated {
  static constexpr const char* kind = "token_rotated";
  TokenId token;
  std::string hash;
  WallTime expires_at;  // 0: never
  WallTime previous_until;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("token", s.token);
    v("hash", s.hash);
    v("expires_at_ns", s.expires_at);
    v("previous_until_ns", s.previous_until);
  }
};

// ---- commands; `by`: the user who asks, 0: the head itself
struct SetRole {
  std::string name;
  std::vector<Permission> allow;
  UserId by;
};
struct RemoveRole {
  std::string name;
};
struct RotateToken {
  TokenId token;
  std::string hash;
  Duration life;   // of the new secret; 0: never expires
  Duration grace;  // how long the old secret is still accepted
};

namespace limits {
inline constexpr std::size_t custom_roles_max = 200;
}  // namespace limits

}  // namespace billow
