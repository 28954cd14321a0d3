#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/json_errors.h"
#include "client/pager.h"

namespace billow::client {

CommandTable client_commands() {
  CommandTable table;
  table.reserve(96);
  add_run_commands(table);
  add_job_commands(table);
  add_label_commands(table);
  add_forward_commands(table);
  add_schedule_commands(table);
  add_cluster_commands(table);
  add_pool_commands(table);
  add_cloud_commands(table);
  add_check_commands(table);
  add_top_commands(table);
  add_login_commands(table);
  add_access_commands(table);
  add_token_commands(table);
  add_role_commands(table);
  add_backend_commands(table);
  add_secret_commands(table);
  add_audit_commands(table);
  add_quota_commands(table);
  add_config_commands(table);
  add_reserve_commands(table);
  add_cost_commands(table);
  add_budget_commands(table);
  add_price_commands(table);
  add_idle_commands(table);
  add_webhook_commands(table);
  add_notify_commands(table);
  add_commitment_commands(table);
  add_advise_commands(table);
  add_endpoint_commands(table);
  add_profile_commands(table);
  add_loadtest_commands(table);
  add_file_commands(table);
  add_volume_commands(table);
  add_environment_commands(table);
  add_rerun_commands(table);
  add_mcp_commands(table);
  add_docs_commands(table);
  add_python_commands(table);
  add_meta_commands(table);
  return table;
}

namespace {

// `billow --data DIR ps` means `billow ps --data DIR`.
void move_leading_options(std::vector<std::string>& args) {
  std::vector<std::string> leading;
  std::size_t at = 0;
  while (at < args.size() && (args[at].starts_with("--head") || args[at].starts_with("--data"))) {
    leading.push_back(args[at]);
    if (args[at].find('=') == std::string::npos && at + 1 < args.size())
      leading.push_back(args[++at]);
    ++at;
  }
  if (leading.empty())
    return;
  args.erase(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(at));
  if (!args.empty())
    args.insert(args.begin() + 1, leading.begin(), leading.end());
}

// `billow schedule --help`: what a group of commands has.
std::string group_help(const CommandTable& table, const std::string& first) {
  std::string text;
  for (const CommandSpec& c : table)
    if (c.name == first)
      return {};  // it has help of its own
  for (const CommandSpec& c : table)
    if (c.name.starts_with(first + " "))
      text += fmt::format("  billow {:<16}  {}\n", c.name, c.summary);
  return text.empty() ? text
                      : fmt::format("billow {}:\n\n{}\nRun `billow {} … --help` for details.\n",
                                    first, text, first);
}

}  // namespace

int dispatch(const CommandTable& table, std::vector<std::string> args) {
  move_leading_options(args);
  if (args.empty() || args[0] == "--help" || args[0] == "-h")
    args = {"help"};
  if (args[0] == "--version" || args[0] == "-V")
    args = {"version"};
  if (args.size() > 1 && (args[1] == "--help" || args[1] == "-h"))
    if (const std::string help = group_help(table, args[0]); !help.empty()) {
      print(help);
      return 0;
    }
  const auto found = find_command(table, args);
  if (!found) {
    if (const std::string name = server_command(args); !name.empty() && !can_start_head())
      return report(
          {Code::unsupported,
           fmt::format(
               "this program is a client only; run `billow {}` on the head's machine (Linux)",
               name),
           "see `billow help` for the commands of a client"});
    return report_usage(found.error());
  }
  const CommandSpec& command = *found->command;
  const auto dashes = std::find(args.begin(), args.end(), "--");
  const ErrorForm form(command.prints_json && std::find(args.begin(), dashes, "--json") != dashes);
  args.erase(args.begin(), args.begin() + static_cast<std::ptrdiff_t>(found->words));
  const bool wants_help = !args.empty() && (args[0] == "--help" || args[0] == "-h");
  if (command.run_args && !wants_help)
    return command.run_args(std::move(args));
  const auto parsed = parse(command, args);
  if (!parsed)
    return report_usage(parsed.error());
  if (parsed->help) {
    show_paged(help_text(command));
    return 0;
  }
  return command.run(*parsed);
}

}  // namespace billow::client
