#include "server/up_checks.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "agent/isolate/gpu_claim.h"
#include "base/text.h"
#include "client/frame/connect.h"
#include "client/frame/console.h"
#include "client/frame/local_heads.h"
#include "gpu/backend.h"
#include "net/http/blocking_client.h"

namespace billow::client {
namespace {

std::string account_name(uid_t uid) {
  const passwd* account = ::getpwuid(uid);
  return account ? account->pw_name : fmt::format("uid{}", uid);
}

}  // namespace

std::optional<int> beside_another_head(const Parsed& parsed, const head::HeadOptions& options) {
  if (head_lives_in(options.data_dir))
    return std::nullopt;
  for (const LocalHead& other : running_heads()) {
    const std::string place = fmt::format(
        "{}data in {}", other.address.empty() ? "" : other.address + ", ", other.data_dir);
    if (!data_is_named(parsed.get("data"))) {
      if (parsed.has("background")) {
        tell_it_runs(parsed, place, other.data_dir);
        return 0;
      }
      return report({Code::conflict,
                     fmt::format("one of your heads already runs on this machine: {}", place),
                     fmt::format("stop it with `{}`, or start a second one in its own directory: "
                                 "billow up --data DIR",
                                 down_command(other.data_dir))});
    }
    if (other.machine_gpus && options.local_agent && options.sim.empty())
      say(
          fmt::format("note: another of your heads runs on this machine ({}); both use its GPUs "
                      "without knowing of each other's jobs",
                      place));
  }
  return std::nullopt;
}

void tell_it_runs(const Parsed& parsed, const std::string& place, const std::string& data_dir) {
  print(fmt::format("billow is already running: {}\n", place));
  std::string unused;
  for (const std::string& name : parsed.order())
    if (name != "background" && name != "data" && name != "verbose" && name != "log-json" &&
        unused.find("--" + name) == std::string::npos)
      unused += fmt::format("{}--{}", unused.empty() ? "" : ", ", name);
  if (!unused.empty())
    say(
        fmt::format("note: it keeps the options it was started with, so {} had no effect; to start "
                    "it again with other options (jobs continue): {}, then this command",
                    unused, down_command(data_dir)));
}

Status check_gpus_are_free(const head::HeadOptions& options) {
  if (!options.local_agent || !options.sim.empty() || head_lives_in(options.data_dir))
    return {};
  const auto backend = GpuBackend::open({});
  const auto inventory = backend ? (*backend)->inventory() : Result<GpuInventory>(GpuInventory{});
  if (!inventory)
    return {};
  for (const GpuInfo& gpu : inventory->gpus) {
    const auto holder = agent::gpu_holder(gpu.uuid);
    if (!holder || holder->uid == ::geteuid())
      continue;
    return fail(Code::conflict,
                fmt::format("{} already runs Billow on this machine's GPUs (process {}); a second "
                            "head would give them out twice",
                            holder->name, holder->pid),
                fmt::format("ask {} for access: {}`billow token create --user {}`, then `billow "
                            "login` here",
                            holder->name,
                            holder->uid == 0 ? "`billow up --system` serves every account of this "
                                               "machine; or "
                                             : "",
                            account_name(::geteuid())));
  }
  return {};
}

Status set_system(const Parsed& parsed, head::HeadOptions& options) {
  if (!parsed.has("system"))
    return {};
  if (::geteuid() != 0)
    return fail(Code::forbidden, "--system serves every account of this machine, so it needs root",
                "sudo billow up --system; without root, `billow up` serves you alone");
  options.system_socket = system_socket_path();
  return {};
}

void tell_of_head_on_usual_port(const std::string& where) {
  constexpr const char* usual = "http://127.0.0.1:7070";
  if (where == usual)
    return;
  const auto endpoint = net::parse_endpoint(usual);
  if (!endpoint)
    return;
  net::BlockingClient http({.endpoint = *endpoint, .connect_timeout = seconds(1)});
  const auto answer = http.request({.target = "/healthz", .timeout = seconds(2)});
  if (!answer || answer->status != 200 || trim(answer->body) != R"({"ok":true})")
    return;
  say(
      fmt::format("note: another head answers at {}; both use this machine's GPUs. To use that one "
                  "instead: `billow down`, then `billow login {}`",
                  usual, usual));
}

}  // namespace billow::client
