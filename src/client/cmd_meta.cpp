// About the program itself: completion, version, help.
#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/pager.h"
#include "client/request/job_request.h"

namespace billow::client {
namespace {

constexpr OptionSpec help_options[] = {
    {"all", 'a', nullptr, "list every command with its summary"},
    {"markdown", 0, nullptr, "print the whole reference (docs/cli.md)"},
    {"man", 0, nullptr, "print the manual page of the command, or of billow"},
    {"man-dir", 0, "DIR", "write all manual pages into this directory", false,
     Completes::directory},
    {"rights", 0, nullptr, "print permissions, roles and what each route needs (docs/rights.md)"},
    {"job-schemas", 0, nullptr, "print the API's schemas of a job (src/api/job_schemas.json)"}};

int cmd_completion(const Parsed& parsed) {
  const auto shell = one_operand(parsed, "completion", "shell (bash, zsh or fish)");
  if (!shell)
    return report_usage(shell.error());
  const auto script = completion_script(all_commands(), *shell);
  if (!script)
    return report_usage(script.error());
  print(*script);
  return 0;
}

int cmd_version(const Parsed& parsed) {
  if (parsed.has("json"))
    print_json(Json::object({{"version", version()}}));
  else
    print(fmt::format("billow {}{}\n", version(), can_start_head() ? "" : " (client)"));
  return 0;
}

int write_man_pages(const CommandTable& table, const std::string& directory) {
  if (const Status made = make_directories(directory, 0755); !made)
    return report(made.error());
  for (const ManPage& page : man_pages(table, version()))
    if (const Status written =
            write_file_atomic(directory + "/" + page.file, page.text, 0644, false);
        !written)
      return report(written.error());
  return 0;
}

// The help of all commands whose first word is given, if that word alone is no command.
std::string help_of_all(const CommandTable& table, const std::string& first) {
  std::string text;
  for (const auto& command : table) {
    if (command.name == first)
      return {};
    if (command.name.starts_with(first + " "))
      text += (text.empty() ? "" : "\n") + help_text(command);
  }
  return text;
}

int cmd_help(const Parsed& parsed) {
  const CommandTable table = all_commands();
  if (parsed.has("markdown")) {
    print(markdown(table));
    return 0;
  }
  if (parsed.has("rights")) {
    const std::string page = rights_page();
    if (page.empty())
      return report({Code::unsupported, "this program is only a client and has no table of rights",
                     "see docs/rights.md"});
    print(page);
    return 0;
  }
  if (parsed.has("job-schemas")) {
    print(job_schemas().dump_pretty() + "\n");
    return 0;
  }
  if (parsed.has("man-dir"))
    return write_man_pages(table, parsed.get("man-dir"));
  if (parsed.operands.empty()) {
    if (parsed.has("man"))
      print(man_overview(table, version()));
    else
      show_paged(
          overview_text(table, version(), parsed.has("all") ? Overview::all : Overview::everyday));
    return 0;
  }
  if (const std::string all = help_of_all(table, parsed.operands.front());
      !all.empty() && parsed.operands.size() == 1 && !parsed.has("man")) {
    show_paged(all);
    return 0;
  }
  const auto found = find_command(table, parsed.operands);
  if (!found)
    return report_usage(found.error());
  if (parsed.has("man"))
    print(man_page(*found->command, version()));
  else
    show_paged(help_text(*found->command));
  return 0;
}

}  // namespace

void add_meta_commands(CommandTable& table) {
  table.push_back({.name = "completion",
                   .summary = "print a shell completion script",
                   .example = "billow completion bash > /etc/bash_completion.d/billow\nbillow "
                              "completion zsh > ~/.zfunc/_billow",
                   .run = cmd_completion,
                   .usage = "bash|zsh|fish",
                   .operands = Operands::some,
                   .completes = Completes::choice,
                   .choices = "bash,zsh,fish",
                   .group = "other",
                   .talks_to_head = false,
                   .prints_json = false});
  table.push_back({.name = "version",
                   .summary = "print the version",
                   .example = "billow version",
                   .run = cmd_version,
                   .group = "other",
                   .talks_to_head = false});
  table.push_back({.name = "help",
                   .summary = "list the commands, or explain one",
                   .example = "billow help run",
                   .run = cmd_help,
                   .usage = "[COMMAND]",
                   .options = {help_options},
                   .operands = Operands::some,
                   .group = "other",
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
