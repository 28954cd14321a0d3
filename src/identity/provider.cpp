#include "identity/provider.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace billow::identity {
namespace {

// A group fits only as a whole; a workload's subject may end in a part that does not matter, such
// as the name of a branch.
bool fits(ProviderKind kind, std::string_view pattern, std::string_view text) {
  if (kind == ProviderKind::workload && pattern.ends_with('*'))
    return text.starts_with(pattern.substr(0, pattern.size() - 1));
  return pattern == text;
}

// Which of two roles counts. What a role allows is for the head to say, so other roles than these
// are equal here.
int rank(std::string_view role) {
  return role == roles::viewer ? 0 : role == roles::member ? 1 : role == roles::admin ? 3 : 2;
}

std::string higher(const std::string& first, const std::string& second) {
  return rank(second) > rank(first) ? second : first;
}

}  // namespace

Result<RoleMapping> parse_role_mapping(std::string_view text) {
  const auto equals = text.rfind('=');
  const auto colon = text.rfind(':');
  if (equals == std::string_view::npos || colon == std::string_view::npos || colon < equals ||
      equals == 0)
    return fail(Code::invalid, fmt::format("\"{}\" is not a mapping", text),
                "write GROUP=PROJECT:ROLE, such as ml-team=vision:member");
  RoleMapping out;
  out.from = text.substr(0, equals);
  out.project = text.substr(equals + 1, colon - equals - 1);
  out.role = text.substr(colon + 1);
  BILLOW_TRY_VOID(check_name("role", out.role));
  if (out.project != whole_installation)
    BILLOW_TRY_VOID(check_name("project", out.project));
  return out;
}

Status check_provider(const IdentityProvider& p) {
  BILLOW_TRY_VOID(check_name("provider", p.name));
  if (p.issuer.empty() || p.client_id.empty())
    return fail(Code::invalid, "a provider needs an issuer and a client id");
  if (p.map.empty())
    return fail(Code::invalid, "at least one role mapping is required",
                "add --map GROUP=PROJECT:ROLE");
  constexpr Duration life_min = minutes(1), life_max = hours(24 * 30), check_min = seconds(1);
  if (p.life < life_min || p.life > life_max || p.check_every < check_min)
    return fail(Code::invalid, "tokens of a sign-in are valid for 1 minute to 30 days");
  if (p.kind == ProviderKind::oidc)
    return {};
  BILLOW_TRY_VOID(check_name("user", p.user));
  for (const RoleMapping& mapping : p.map)
    if (mapping.project == whole_installation ||
        (mapping.role != roles::viewer && mapping.role != roles::member))
      return fail(Code::invalid, "CI jobs can only be viewers or members of a project");
  return {};
}

Rights rights_of(const IdentityProvider& provider, const std::vector<std::string>& groups) {
  Rights out;
  for (const RoleMapping& mapping : provider.map) {
    if (std::ranges::none_of(groups, [&](const std::string& group) {
          return fits(provider.kind, mapping.from, group);
        }))
      continue;
    if (mapping.project == whole_installation) {
      out.installation = higher(out.installation.value_or(mapping.role), mapping.role);
      continue;
    }
    const auto known = std::ranges::find(out.projects, mapping.project, &RoleMapping::project);
    if (known == out.projects.end())
      out.projects.push_back({"", mapping.project, mapping.role});
    else
      known->role = higher(known->role, mapping.role);
  }
  return out;
}

}  // namespace billow::identity
