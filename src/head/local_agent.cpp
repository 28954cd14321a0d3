#include "head/local_agent.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/file.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "base/text.h"
#include "process/gateway_group.h"
#include "process/spawn.h"

namespace billow::head {

bool local_agent_alive(const std::string& data_dir) {
  return lock_is_held(data_dir + "/agent/lock");
}
bool local_gateway_alive(const std::string& data_dir) {
  return lock_is_held(data_dir + "/gateway/lock");
}

namespace {

// Runs a program detached from this process.
Status start_detached(process::Spawn request) {
  // Jobs inherit the agent's environment, and must not find the credentials of the head's database.
  request.env.emplace();
  for (std::string& variable : process::our_environment())
    if (!variable.starts_with("BILLOW_STORE=") && !variable.starts_with("PGPASS"))
      request.env->push_back(std::move(variable));
  request.group = process::Group::session;
  request.detached = true;
  if (auto started = process::spawn(request); !started)
    return fail(Code::internal, fmt::format("`billow {}` could not be started: {}", request.argv[1],
                                            started.error().message));
  return {};
}

// Who the gateway runs as; none: as the head, which is not root.
Result<std::optional<process::Identity>> gateway_identity(const std::string& name) {
  if (::geteuid() != 0)
    return std::optional<process::Identity>();
  for (const char* user : {name.empty() ? "billow-gateway" : name.c_str(), "nobody"}) {
    if (const passwd* entry = ::getpwnam(user); entry && entry->pw_uid != 0)
      return std::optional(process::Identity{entry->pw_uid, entry->pw_gid, {}});
    if (!name.empty())
      return fail(Code::invalid,
                  fmt::format("the gateway cannot run as {}: it is root, or no account of this "
                              "machine",
                              name),
                  "choose another with --gateway-user");
  }
  return fail(Code::not_found, "this machine has no account nobody for the gateway",
              "create one for it (useradd -r billow-gateway), or choose one with --gateway-user");
}

// Files of a gateway that still ran as root. Only while the directory is root's, so that nobody
// else can have put links there.
Status hand_over(const Fd& directory, const process::Identity& to) {
  struct stat info {};
  if (::fstat(directory.get(), &info) != 0)
    return fail_errno("the gateway's directory", errno);
  if (info.st_uid == to.uid)
    return {};
  std::unique_ptr<DIR, int (*)(DIR*)> list(
      ::fdopendir(::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), ::closedir);
  while (const dirent* entry = list ? ::readdir(list.get()) : nullptr)
    if (entry->d_type == DT_REG)
      (void)!::fchownat(directory.get(), entry->d_name, to.uid, to.gid, AT_SYMLINK_NOFOLLOW);
  if (::fchown(directory.get(), to.uid, to.gid) != 0)
    return fail_errno("the gateway's directory", errno);
  return {};
}

Result<Fd> open_directory(const std::string& path) {
  Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory)
    return fail_errno(path, errno);
  return directory;
}

constexpr int fd_for_gateway = 3, fd_gateway = 4;

}  // namespace

std::string gateway_socket(const std::string& data_dir) {
  return data_dir + "/for-gateway/head.sock";
}

Status prepare_for_gateway(const std::string& data_dir, const std::string& token) {
  const std::string directory = data_dir + "/for-gateway";
  BILLOW_TRY_VOID(make_directories(directory, 0711));
  ::chmod(directory.c_str(), 0711);  // the gateway's account reaches its files through it
  return write_file_atomic(directory + "/token", token + "\n", 0600, true);
}

Result<int> ensure_local_gateway(const LocalGatewayOptions& options) {
  BILLOW_TRY_VOID(make_directories(options.data_dir + "/gateway", 0700));
  const Fd own = BILLOW_TRY(open_directory(options.data_dir + "/gateway"));
  const Fd shared = BILLOW_TRY(open_directory(options.data_dir + "/for-gateway"));
  Fd log(::open((options.data_dir + "/gateway.log").c_str(),
                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log)
    return fail_errno(options.data_dir + "/gateway.log", errno);
  process::Spawn request;
  request.identity = BILLOW_TRY(gateway_identity(options.user));
  if (request.identity)
    BILLOW_TRY_VOID(hand_over(own, *request.identity));
  // The gateway alone reads its token: closed directories around it are not enough.
  if (request.identity && ::fchownat(shared.get(), "token", request.identity->uid,
                                     request.identity->gid, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno("the gateway's token", errno);
  const std::string head = fmt::format("/proc/self/fd/{}", fd_for_gateway);
  request.argv = {executable_dir() + "/billow",
                  "gateway",
                  "--head",
                  fmt::format("unix:{}/head.sock", head),
                  "--token-file",
                  head + "/token",
                  "--data",
                  fmt::format("/proc/self/fd/{}", fd_gateway)};
  for (const auto& address : options.listen)
    request.argv.insert(request.argv.end(), {"--listen", address});
  if (options.listen.empty())
    request.argv.emplace_back("--any-port");
  if (!options.region.empty())
    request.argv.insert(request.argv.end(), {"--region", options.region});
  for (const auto& host : options.webhook_hosts)
    request.argv.insert(request.argv.end(), {"--webhook-host", host});
  if (!options.otlp.empty())
    request.argv.insert(request.argv.end(), {"--otlp", options.otlp});
  if (!options.trace_sample.empty())
    request.argv.insert(request.argv.end(), {"--trace-sample", options.trace_sample});
  if (!options.sample_to.empty())
    request.argv.insert(request.argv.end(), {"--sample-to", options.sample_to});
  request.argv.insert(request.argv.end(), options.arguments.begin(), options.arguments.end());
  // How the running one was started. One without such a file knows of no successors.
  const std::string started = options.data_dir + "/gateway.started";
  const std::string how = std::string(BILLOW_VERSION) + "\n" + join(request.argv, "\n");
  if (local_gateway_alive(options.data_dir)) {
    if (const auto before = read_file(started, 64 << 10); !before || *before == how)
      return 0;
    log_info("replacing the gateway: its version or options have changed");
    request.argv.emplace_back("--take-over");
  }
  BILLOW_TRY_VOID(write_file_atomic(started, how, 0600));
  request.fds = {{shared.get(), fd_for_gateway}, {own.get(), fd_gateway}};
  request.out = request.err = log.get();
  request.cwd = "/";
  request.low_ports = true;
  // Replicas on this machine answer gateways in this group alone. Without one they answer
  // everybody.
  if (auto group = process::gateway_group())
    request.cgroups = {std::move(*group)};
  BILLOW_TRY_VOID(start_detached(std::move(request)));
  return 1;
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
  process::Spawn request;
  request.argv = std::move(args);
  request.out = request.err = log.get();
  request.open_files = options.open_files;
  BILLOW_TRY_VOID(start_detached(std::move(request)));
  return 1;
}

}  // namespace billow::head
