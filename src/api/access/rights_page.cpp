// docs/rights.md, from the tables that the head itself uses.
#include <fmt/format.h>

#include "api/api.h"
#include "base/text.h"

namespace billow::api {
namespace {

const char* token_text(Need need) {
  switch (need) {
    case Need::nothing:
      return "none";
    case Need::look:
      return "any person's";
    case Need::work:
      return "submit or full";
    case Need::full:
      return "full";
    case Need::node:
      return "node";
    case Need::join:
      return "join";
    case Need::files:
      return "submit, full or node";
    case Need::gateway:
      return "gateway or full";
    case Need::machine:
      return "node or gateway";
  }
  return "?";
}

std::string permissions_text() {
  std::string out =
      "## Permissions\n| permission | of | a read-only token has it | allows to "
      "|\n|---|---|---|---|\n";
  for (const control::PermissionInfo& each : control::permission_table())
    out += fmt::format("| `{}` | {} | {} | {} |\n", enum_name(each.permission),
                       each.of_project ? "a project" : "the installation",
                       each.reads ? "yes" : "no", each.allows);
  return out;
}

std::string roles_text() {
  std::string head = "| permission |", line = "|---|", out;
  for (const control::BuiltInRole& role : control::built_in_roles()) {
    head += fmt::format(" {} |", role.name);
    line += "---|";
  }
  for (const control::PermissionInfo& each : control::permission_table()) {
    out += fmt::format("| `{}` |", enum_name(each.permission));
    for (const control::BuiltInRole& role : control::built_in_roles())
      out += role.allow.has(each.permission) ? " yes |" : " |";
    out += "\n";
  }
  return "## Built-in roles\nA role that is given in a project allows what is of a project, there. "
         "A role on the installation\nallows all of it everywhere, except viewer and member, which "
         "allow nothing there.\n\n" +
         head + "\n" + line + "\n" + out;
}

}  // namespace

std::string rights_page() {
  std::string out =
      "# Rights\nPrinted by `billow help --rights` from the tables that the head checks every call "
      "against.\n[access.md](access.md) explains users, roles and tokens.\n\n";
  out += permissions_text() + "\n" + roles_text();
  out +=
      "\n## Routes\n`own`: everybody, for what is their own. With several permissions, one of "
      "them is enough.\n\n| route | token | permission |\n|---|---|---|\n";
  for (const RouteInfo& route : Api::routes()) {
    const bool person =
        route.need == Need::look || route.need == Need::work || route.need == Need::full;
    out += fmt::format("| `{} {}` | {} | {} |\n", net::method_name(route.method), route.pattern,
                       token_text(route.need),
                       !route.permissions.empty() ? control::names_of(route.permissions)
                       : person                   ? "own"
                                                  : "");
  }
  return out;
}

}  // namespace billow::api
