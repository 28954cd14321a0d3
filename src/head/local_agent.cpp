#include "head/local_agent.h"

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/file.h"
#include "base/lock_file.h"
#include "process/spawn.h"

namespace billow::head {

bool local_agent_alive(const std::string& data_dir) {
  return lock_is_held(data_dir + "/agent/lock");
}
bool local_gateway_alive(const std::string& data_dir) {
  return lock_is_held(data_dir + "/gateway/lock");
}

Status start_detached(std::vector<std::string> args, int log_fd, std::uint64_t open_files) {
  process::Spawn request;
  request.argv = std::move(args);
  // Jobs inherit the agent's environment, and must not find the credentials of the head's database.
  request.env.emplace();
  for (std::string& variable : process::our_environment())
    if (!variable.starts_with("BILLOW_STORE=") && !variable.starts_with("PGPASS"))
      request.env->push_back(std::move(variable));
  request.out = request.err = log_fd;
  request.group = process::Group::session;
  request.detached = true;
  request.open_files = open_files;
  if (auto started = process::spawn(request); !started)
    return fail(Code::internal, fmt::format("`billow {}` could not be started: {}", request.argv[1],
                                            started.error().message));
  return {};
}

Status ensure_local_gateway(const std::string& data_dir,
                            const std::string& head_address,
                            const std::vector<std::string>& listen,
                            const std::string& region,
                            const std::vector<std::string>& webhook_hosts) {
  if (local_gateway_alive(data_dir))
    return {};
  BILLOW_TRY_VOID(make_directories(data_dir + "/gateway", 0700));
  Fd log(
      ::open((data_dir + "/gateway.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log)
    return fail_errno(data_dir + "/gateway.log", errno);
  std::vector<std::string> args = {executable_dir() + "/billow",
                                   "gateway",
                                   "--head",
                                   head_address,
                                   "--token-file",
                                   data_dir + "/token",
                                   "--data",
                                   data_dir + "/gateway"};
  for (const auto& address : listen)
    args.insert(args.end(), {"--listen", address});
  if (listen.empty())
    args.emplace_back("--any-port");
  if (!region.empty())
    args.insert(args.end(), {"--region", region});
  for (const auto& host : webhook_hosts)
    args.insert(args.end(), {"--webhook-host", host});
  return start_detached(std::move(args), log.get());
}

Result<int> ensure_local_agent(const LocalAgentOptions& options) {
  if (local_agent_alive(options.data_dir))
    return 0;
  const std::string agent_dir = options.data_dir + "/agent";
  BILLOW_TRY_VOID(make_directories(agent_dir, 0700));
  Fd log(::open((options.data_dir + "/agent.log").c_str(),
                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log)
    return fail_errno(options.data_dir + "/agent.log", errno);
  std::vector<std::string> args = {
      executable_dir() + "/billow", "agent",  "--head", options.head_address, "--token-file",
      options.token_path,           "--data", agent_dir};
  if (!options.sim.empty())
    args.insert(args.end(), {"--sim", options.sim});
  if (!options.node_name.empty())
    args.insert(args.end(), {"--node-name", options.node_name});
  for (const std::string& label : options.labels)
    args.insert(args.end(), {"--label", label});
  BILLOW_TRY_VOID(start_detached(std::move(args), log.get(), options.open_files));
  return 1;
}

}  // namespace billow::head
