// Roles: lists of permissions that admins make.
#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "net/http/http.h"

namespace billow::client {
namespace role_command {
namespace {

constexpr OptionSpec create_options[] = {
    {"allow", 0, "LIST", "permissions, e.g. jobs.read,money.read; see `billow help --rights`",
     true}};

std::string path_of(const std::string& name) {
  return "/v1/roles/" + net::percent_encode(name);
}

int create(const Parsed& p) {
  const auto name = one_operand(p, "role create", "name");
  if (!name)
    return report_usage(name.error());
  Json allow = Json::array();
  for (const std::string& list : p.all("allow"))
    for (const std::string& each : split(list, ','))
      if (!trim(each).empty())
        allow.push(std::string(trim(each)));
  if (allow.items().empty())
    return report_usage({Code::invalid, "a role needs permissions",
                         "add --allow jobs.read,jobs.run; see `billow help --rights`"});
  return ask(
      p,
      [&](Client& c) {
        return c.put(path_of(*name), Json::object({{"allow", allow}}).dump());
      },
      [&](const Json&) {
        print(
            fmt::format("set role {}; give it with `billow project member PROJECT USER --role {}` "
                        "or `billow user set USER --role {}`\n",
                        *name, *name, *name));
      });
}

int list(const Parsed& p) {
  return ask(
      p, [](Client& c) { return c.get("/v1/roles"); },
      [](const Json& answer) {
        Table table({{"ROLE"}, {"MADE BY"}, {"ALLOWS", Table::Align::left, 24}});
        for (const Json& role : list_in(answer, "roles")) {
          std::vector<std::string> allows;
          for (const Json& each : role["allow"].items())
            allows.emplace_back(each.str_or("?"));
          table.row({std::string(role["name"].str_or("?")),
                     role["built_in"].bool_or(false) ? "built in"
                                                     : std::string(role["set_by"].str_or("-")),
                     join(allows, ", ")});
        }
        show_table(table, "there are no roles");
      });
}

int remove(const Parsed& p) {
  const auto name = one_operand(p, "role delete", "name");
  if (!name)
    return report_usage(name.error());
  return ask(
      p, [&](Client& c) { return c.del(path_of(*name)); },
      [&](const Json&) { print(fmt::format("deleted role {}\n", *name)); });
}

}  // namespace
}  // namespace role_command

void add_role_commands(CommandTable& table) {
  using namespace role_command;
  table.push_back({.name = "role create",
                   .summary = "create a role, or change what it allows",
                   .example = "billow role create accountant --allow money.read,money.set",
                   .run = create,
                   .usage = "NAME",
                   .details = "A role is a list of permissions. Given in a project, it allows "
                              "only what concerns that project; given on the installation "
                              "(`billow user set`), it allows everything it lists, in every "
                              "project.\nYou cannot create or give a role with permissions that "
                              "you do not have.",
                   .options = {create_options},
                   .operands = Operands::some,
                   .group = people_group});
  table.push_back({.name = "role list",
                   .summary = "list roles and what they allow",
                   .example = "billow role list",
                   .run = list,
                   .group = people_group});
  table.push_back({.name = "role delete",
                   .summary = "delete a role that nobody has",
                   .example = "billow role delete accountant",
                   .run = remove,
                   .usage = "NAME",
                   .operands = Operands::some,
                   .group = people_group});
}

}  // namespace billow::client
