// `billow uplink`: the process that carries the connections of one job with --network internet into
// the node's network (agent/network/uplink.h). The agent starts it.
#include <fcntl.h>

#include "agent/network/uplink.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "net/loop.h"

namespace billow::client {
namespace {

constexpr OptionSpec uplink_options[] = {
    {"allow", 0, "BLOCK", "private network that may be reached (repeatable)", true},
    {"name-server", 0, "ADDRESS", "name server whose port 53 may be reached (repeatable)", true},
};

Result<std::vector<AddressBlock>> name_servers(const std::vector<std::string>& texts) {
  std::vector<AddressBlock> out;
  for (const std::string& text : texts)
    out.push_back(BILLOW_TRY(AddressBlock::parse(text)));
  return out;
}

int cmd_uplink(const Parsed& parsed) {
  for (const int fd : {agent::uplink_fds::life, agent::uplink_fds::link,
                       agent::uplink_fds::connections, agent::uplink_fds::packets})
    if (::fcntl(fd, F_GETFD) < 0)
      return report_usage({Code::invalid, "no network to carry",
                           "Billow itself starts this for jobs with --network internet"});
  auto allowed = parse_allowed(parsed.all("allow"), 2 * limits::allowed_blocks_max);
  if (!allowed)
    return report(allowed.error());
  auto servers = name_servers(parsed.all("name-server"));
  if (!servers)
    return report(servers.error());
  auto rules = agent::ReachRules::create(std::move(*allowed), std::move(*servers));
  if (!rules)
    return report(rules.error());
  net::Loop loop;
  agent::Uplink uplink(loop, std::move(*rules));
  uplink.run();
  return 0;
}

}  // namespace

void add_uplink_commands(CommandTable& table) {
  table.push_back({.name = "uplink",
                   .summary =
                       "carry the connections of a job with --network internet into the node's "
                       "network (the agent starts it beside such jobs)",
                   .example = "billow uplink --name-server 10.0.0.2",
                   .run = cmd_uplink,
                   .options = {uplink_options},
                   .group = internal_group,
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
