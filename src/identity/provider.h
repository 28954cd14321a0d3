// Identity providers: whom people and CI systems prove their identity to, and what Billow gives
// them for it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/model/permission.h"
#include "core/model/states.h"

namespace billow {

enum class ProviderKind {
  oidc,      // people sign in there
  workload,  // CI systems get ID tokens there and exchange them
};
BILLOW_ENUM_NAMES(ProviderKind, {ProviderKind::oidc, "oidc"}, {ProviderKind::workload, "workload"});

}  // namespace billow

namespace billow::identity {

// `GROUP=PROJECT:ROLE`. Names are compared byte by byte.
struct RoleMapping {
  std::string from;  // a group; of a workload: the token's subject, a final * stands for the rest
  std::string project;  // "*": the whole installation
  std::string role = roles::member;
  bool operator==(const RoleMapping&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("from", s.from);
    v("project", s.project);
    v("role", s.role);
  }
};
inline constexpr std::string_view whole_installation = "*";
// The project and role stand behind the last "=", because names of groups may contain any sign.
Result<RoleMapping> parse_role_mapping(std::string_view text);

struct IdentityProvider {
  std::string name;
  ProviderKind kind = ProviderKind::oidc;
  std::string issuer;
  std::string client_id;      // of a workload: the audience that its tokens are for
  std::string client_secret;  // empty: a public client
  std::vector<RoleMapping> map;
  std::vector<std::string> domains;  // of e-mail addresses; empty: all
  std::string groups_claim = "groups";
  std::string name_claim = "preferred_username";
  std::string user;  // of a workload: the user that its tokens are for
  Duration life = hours(12);
  Duration check_every = minutes(15);  // whether the provider still knows a person
  UserId by;                           // the admin who added it
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("kind", s.kind);
    v("issuer", s.issuer);
    v("client_id", s.client_id);
    v("client_secret", s.client_secret);
    v("map", s.map);
    v("domains", s.domains);
    v("groups_claim", s.groups_claim);
    v("name_claim", s.name_claim);
    v("user", s.user);
    v("life_ns", s.life);
    v("check_every_ns", s.check_every);
    v("by", s.by);
  }
};
// What somebody's groups give in each project: the first of the mapped roles that is neither viewer
// nor member, or admin if it is among them. None: no group is mapped.
struct Rights {
  std::vector<RoleMapping> projects;  // `from` is empty
  std::optional<std::string> installation;
  bool none() const { return projects.empty() && !installation; }
};
// What cannot work, or would give too much.
Status check_provider(const IdentityProvider& provider);
Rights rights_of(const IdentityProvider& provider, const std::vector<std::string>& groups);

}  // namespace billow::identity
