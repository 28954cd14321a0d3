// Volumes: paths that some nodes have, which jobs ask for by name.
#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/ask.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/request/sync.h"
#include "net/http/http.h"

namespace billow::client {
namespace {

constexpr OptionSpec add_options[] = {
    {"path", 0, "DIR", "directory on the nodes", false, Completes::directory},
    {"pool", 0, "NAME", "only nodes of this pool"},
    {"label", 'l', "K=V", "only nodes with this label", true},
    {"project", 'p', "NAME", "only jobs of this project may mount it", true},
    {"read-only", 0, nullptr, "mount it read-only"},
};

int cmd_volume_add(const Parsed& parsed) {
  if (parsed.operands.size() != 1 || parsed.get("path").empty())
    return report_usage({Code::invalid, "a volume needs a name and a path",
                         "for example: billow volume add data --path /srv/data"});
  Json labels = Json::object(), projects = Json::array();
  for (const std::string& label : parsed.all("label")) {
    const auto equals = label.find('=');
    if (equals == std::string::npos || equals == 0)
      return report_usage({Code::invalid, fmt::format("--label {} is not KEY=VALUE", label),
                           "use a form like --label zone=a"});
    labels.set(label.substr(0, equals), label.substr(equals + 1));
  }
  for (const std::string& project : parsed.all("project"))
    projects.push(project);
  const Json body = Json::object({{"name", parsed.operands[0]},
                                  {"path", parsed.get("path")},
                                  {"pool", parsed.get("pool")},
                                  {"node_labels", std::move(labels)},
                                  {"projects", std::move(projects)},
                                  {"read_only", parsed.has("read-only")}});
  return ask(
      parsed, [&](Client& c) { return c.post("/v1/volumes", body.dump()); },
      [&](const Json&) {
        print(fmt::format("created volume {}; use it with billow run --volume {}:/mnt/{} …\n",
                          parsed.operands[0], parsed.operands[0], parsed.operands[0]));
      });
}

int cmd_volume_list(const Parsed& parsed) {
  return ask(
      parsed, [](Client& c) { return c.get("/v1/volumes"); },
      [](const Json& answer) {
        Table table(
            {{"VOLUME"}, {"PATH", Table::Align::left, 20}, {"NODES"}, {"PROJECTS"}, {"ACCESS"}});
        for (const Json& volume : answer["volumes"].items()) {
          std::vector<std::string> nodes, projects;
          if (const auto pool = volume["pool"].str_or(""); !pool.empty())
            nodes.push_back(fmt::format("pool {}", pool));
          for (const auto& [key, value] : volume["node_labels"].members())
            nodes.push_back(fmt::format("{}={}", key, value.str_or("")));
          for (const Json& project : volume["projects"].items())
            projects.emplace_back(project.str_or(""));
          table.row({std::string(volume["name"].str_or("")), std::string(volume["path"].str_or("")),
                     nodes.empty() ? "all" : join(nodes, ", "),
                     projects.empty() ? "all" : join(projects, ", "),
                     volume["read_only"].bool_or(false) ? "read-only" : "read and write"});
        }
        show_table(table,
                   "there are no volumes; an admin can create one with `billow volume add NAME "
                   "--path DIR`");
      });
}

int cmd_volume_rm(const Parsed& parsed) {
  const auto name = one_operand(parsed, "volume rm", "volume");
  if (!name)
    return report_usage(name.error());
  return ask(
      parsed, [&](Client& c) { return c.del("/v1/volumes/" + net::percent_encode(*name)); },
      [&](const Json&) {
        print(fmt::format("removed volume {}; its files stay on the nodes\n", *name));
      });
}

}  // namespace

void add_volume_commands(CommandTable& table) {
  table.push_back(
      {.name = "volume add",
       .summary = "let jobs mount a path of the nodes",
       .example = "billow volume add data --path /srv/data --read-only\nbillow run --volume "
                  "data:/mnt/data -- ls /mnt/data",
       .run = cmd_volume_add,
       .usage = "NAME --path DIR",
       .details = "A volume is a local disk of the nodes or a file system they share. Jobs that "
                  "use it run only on nodes that have it. Files keep their owners.",
       .options = {add_options},
       .operands = Operands::some,
       .group = "machines"});
  table.push_back({.name = "volume list",
                   .summary = "list volumes",
                   .example = "billow volume list",
                   .run = cmd_volume_list,
                   .group = "machines"});
  table.push_back({.name = "volume rm",
                   .summary = "remove a volume; its files stay on the nodes",
                   .example = "billow volume rm data",
                   .run = cmd_volume_rm,
                   .usage = "NAME",
                   .operands = Operands::some,
                   .group = "machines"});
}

}  // namespace billow::client
