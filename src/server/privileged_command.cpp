// `billow privileged`: the root helper of a node whose agent is not root (docs/adr/0029).
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "agent/isolate/users.h"
#include "agent/node/node_policy.h"
#include "base/log.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "privileged/helper/server.h"
#include "privileged/helper/task_units.h"
#include "privileged/protocol.h"

namespace billow::client {
namespace {

constexpr char usual_account[] = "billow-node";
constexpr char usual_state[] = "/var/lib/billow-privileged";

constexpr OptionSpec privileged_options[] = {
    {"agent", 0, "ACCOUNT", "account of the agent, which alone may ask (default billow-node)"},
    {"state", 0, "DIR", "where tasks are recorded (default /var/lib/billow-privileged)"},
    {"socket", 0, "PATH", "where it is asked (default /run/billow-privileged/socket)"},
    {"tasks", 0, "units|children",
     "who starts tasks: systemd, each as a unit (default where systemd runs), or this process"},
    {"take", 0, "TASK", "become the supervisor of a task; systemd runs this"},
};

Result<agent::UserRecord> account_of(const std::string& text) {
  if (const auto uid = parse_int(text, 1, UINT32_MAX - 1)) {
    const auto number = static_cast<std::uint32_t>(*uid);
    if (auto named = agent::look_up_uid(number))
      return named;
    return agent::UserRecord{text, "/", "/bin/sh", {number, number, {}}};
  }
  return agent::look_up_user(text);
}

Result<bool> units_of(const Parsed& parsed) {
  const std::string asked = parsed.get("tasks");
  if (asked == "units" || asked == "children")
    return asked == "units";
  if (!asked.empty())
    return fail(Code::invalid, fmt::format("--tasks: \"{}\" is not known", asked),
                "choose units or children");
  struct stat info {};
  return ::stat("/run/systemd/system", &info) == 0;  // sd_booted(3)
}

Result<privileged::Helper::Options> helper_options(const Parsed& parsed) {
  const auto account = BILLOW_TRY(account_of(parsed.get("agent", usual_account)));
  const char* policy = std::getenv(agent::node_policy_variable);
  return privileged::Helper::Options{
      .state_dir = parsed.get("state", usual_state),
      .policy_file = policy ? policy : "",
      .socket = parsed.get("socket", privileged::usual_socket),
      .agent_uid = account.identity.uid,
      .agent_gid = account.identity.gid,
      .units = BILLOW_TRY(units_of(parsed)),
  };
}

int cmd_privileged(const Parsed& parsed) {
  if (::geteuid() != 0)
    return report_usage({Code::forbidden, "the root helper must run as root",
                         "use its unit: systemctl enable --now billow-privileged"});
  ::umask(077);
  configure_log({.level = LogLevel::info, .json = false, .component = "privileged"});
  if (parsed.has("take")) {
    const auto task = parse_int(parsed.get("take"), 1, INT64_MAX);
    if (!task)
      return report_usage({Code::invalid, "--take needs the number of a task", ""});
    const Status failed = privileged::become_supervisor(
        parsed.get("socket", privileged::usual_socket), TaskId(static_cast<std::uint64_t>(*task)));
    return report(failed.error());
  }
  auto options = helper_options(parsed);
  if (!options)
    return report_usage(options.error());
  const Status ended = privileged::serve(std::move(*options));
  return ended ? 0 : report(ended.error());
}

}  // namespace

void add_privileged_commands(CommandTable& table) {
  table.push_back({.name = "privileged",
                   .summary = "do what must be root, for an agent of this machine that is not root",
                   .example = "billow privileged --agent billow-node",
                   .run = cmd_privileged,
                   .options = {privileged_options},
                   .group = internal_group,
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
