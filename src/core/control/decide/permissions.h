// Roles by permission: the one table that every question of rights is answered from. A user has the
// permissions of its role on the installation, there and in every project, and those of its role in
// a project, in that project only. A token may have fewer, by its scope.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/control/decide/decide.h"
#include "core/model/permission.h"

namespace billow::control {

class PermissionSet {
 public:
  constexpr PermissionSet() = default;
  constexpr PermissionSet(Permission one) : bits_(bit(one)) {}
  constexpr PermissionSet(std::initializer_list<Permission> all) {
    for (const Permission one : all)
      bits_ |= bit(one);
  }
  constexpr bool has(Permission one) const { return (bits_ & bit(one)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool contains(PermissionSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr PermissionSet operator|(PermissionSet other) const { return of(bits_ | other.bits_); }
  constexpr PermissionSet operator&(PermissionSet other) const { return of(bits_ & other.bits_); }
  constexpr PermissionSet without(PermissionSet other) const { return of(bits_ & ~other.bits_); }
  bool operator==(const PermissionSet&) const = default;

 private:
  static constexpr std::uint64_t bit(Permission one) {
    return std::uint64_t{1} << static_cast<unsigned>(one);
  }
  static constexpr PermissionSet of(std::uint64_t bits) {
    PermissionSet out;
    out.bits_ = bits;
    return out;
  }
  std::uint64_t bits_ = 0;
};

struct PermissionInfo {
  Permission permission;
  bool of_project;  // else of the installation
  bool reads;       // tokens of scope read have it too
  const char* allows;
};
std::span<const PermissionInfo> permission_table();

struct BuiltInRole {
  const char* name;
  PermissionSet allow;
  // Viewer and member are the roles of users whose rights come from their projects: on the
  // installation they give nothing.
  bool counts_on_installation;
  const char* description;
};
std::span<const BuiltInRole> built_in_roles();

// "jobs.read, jobs.run"
std::string names_of(PermissionSet set, std::string_view between = ", ");
std::vector<Permission> list_of(PermissionSet set);
Result<Permission> parse_permission(std::string_view name);

// What a role allows. A role that does not exist (any more) allows nothing.
PermissionSet allowed_in_project(const State& state, std::string_view role);
PermissionSet allowed_on_installation(const State& state, std::string_view role);

// What a user may do: everywhere; in one project.
PermissionSet permissions_of(const State& state, const User& user);
PermissionSet permissions_in(const State& state, const User& user, ProjectId project);
// The same of a caller, whose token may allow less.
PermissionSet permissions_of(const State& state, const Principal& who);
PermissionSet permissions_in(const State& state, const Principal& who, ProjectId project);

// Of the installation, or in every project.
bool may(const State& state, const Principal& who, Permission permission);
bool may(const State& state, const Principal& who, Permission permission, ProjectId project);
bool may(const State& state, UserId user, Permission permission);
// Whether the caller has any role in the project, and so may know that it exists.
bool sees(const State& state, const Principal& who, ProjectId project);

// Whether a caller may call a route that needs one of these permissions, somewhere. The route then
// asks for the project. A caller without any project passes: the route answers as for things that
// do not exist.
Status permitted(const State& state, const Principal& who, PermissionSet any_of);

// Nobody can give a role with permissions that the giver does not have. `project`: in which it is
// given, 0: on the installation. `by` 0: the head itself.
Status check_grant(const State& state, UserId by, std::string_view role, ProjectId project);
// Nobody can change a user with more permissions on the installation, or act (by a token or a
// login) as a user with more permissions anywhere.
Status check_may_change(const State& state, UserId by, const User& user);
Status check_may_act_as(const State& state, UserId by, const User& user);

}  // namespace billow::control
