// In front of the command of a job with an image or an environment: makes the container, or mounts
// the environment, and starts the command in it. Before such a job the agent also runs this as the
// job's user, to fetch the image or environment. It then prints one JSON object a line: what it
// waits for
// ("note") and the result ("image", "environment", "error"; "busy": another process fetches it, ask
// again). With --enter it starts a command in the container of a running job, for hooks and SSH.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "container/enter.h"
#include "container/environment.h"
#include "container/podman.h"
#include "container/run.h"
#include "core/model/catalogue.h"
#include "core/model/held_variables.h"
#include "core/wire/codec.h"

extern char** environ;

namespace billow::client {
namespace {

constexpr OptionSpec box_options[] = {
    {"image", 0, "NAME", "fetch this image and describe it"},
    {"environment", 0, "DIGEST", "unpack this environment from standard input"},
    {"hold", 0, nullptr, "keep an unpacked environment for the task; do not unpack"},
    {"limit", 0, "BYTES", "size limit of unpacked environments or of images"},
    {"key", 0, "KEY", "key of the task that will use it"},
    {"signed-by", 0, "KEY", "accept only images signed with this public key (PEM, in base64)"},
    {"from-registry", 0, nullptr, "use no images of the user's podman except localhost/…"},
    {"registry-secret", 0, "NAME",
     "name of the secret with the registry login; the login itself is on standard input, in "
     "base64"},
    {"enter", 0, "FILE",
     "enter the container that this file describes and run COMMAND, SSH_ORIGINAL_COMMAND or a "
     "shell there"},
    {"store", 0, "DIR", "where images and environments are stored"},
};
constexpr int room_failed = 125;  // like container runtimes: they failed, not the command

void tell(const Json& line) {
  (void)write_all(STDOUT_FILENO, line.dump() + "\n");
}

template <class T>
int tell_result(const char* what, const Result<std::optional<T>>& result) {
  if (result) {
    if (*result)
      tell(Json::object({{what, parse_json(wire::to_json_text(**result)).value_or(Json())}}));
    else
      tell(Json::object({{"busy", true}}));
    return 0;
  }
  tell(Json::object({{"error", Json::object({{"code", static_cast<int>(result.error().code)},
                                             {"message", result.error().message},
                                             {"hint", result.error().hint}})}}));
  return 1;
}

int bring_image(const Parsed& parsed) {
  const auto name = parse_image_name(parsed.get("image"));
  if (!name)
    return tell_result("image", Result<std::optional<container::LocalImage>>(pass(name.error())));
  const auto limit = parse_int(parsed.get("limit", "0"), 0, INT64_MAX);
  if (!limit)
    return report_usage(limit.error());
  std::string signer;
  if (!base64_decode(parsed.get("signed-by"), signer))
    return report_usage({Code::invalid, "--signed-by is not base64", ""});
  container::RegistryLogin login{.secret = parsed.get("registry-secret"), .value = {}};
  if (!login.secret.empty()) {
    const auto given = read_file("/dev/stdin", 2 * limits::secret_bytes_max);
    if (!given || !base64_decode(*given, login.value))
      return report_usage({Code::invalid, "standard input has no login in base64", ""});
  }
  return tell_result("image",
                     container::provide_image({.store = parsed.get("store"),
                                               .name = *name,
                                               .key = parsed.get("key"),
                                               .bytes_max = static_cast<std::uint64_t>(*limit),
                                               .signed_by = signer,
                                               .from_registry = parsed.has("from-registry"),
                                               .login = login,
                                               .note = [](std::string text) {
                                                 tell(Json::object({{"note", std::move(text)}}));
                                               }}));
}

int unpack(const Parsed& parsed) {
  const auto limit = parse_int(parsed.get("limit", "0"), 0, INT64_MAX);
  if (!limit)
    return report_usage(limit.error());
  const container::Unpacking what{.store = parsed.get("store"),
                                  .digest = parsed.get("environment"),
                                  .key = parsed.get("key"),
                                  .bytes_max = static_cast<std::uint64_t>(*limit)};
  return tell_result("environment", parsed.has("hold")
                                        ? container::hold_environment(what)
                                        : container::unpack_environment(what, STDIN_FILENO));
}

int enter(const std::string& file, const std::vector<std::string>& operands) {
  const auto failed = [](const Error& error) {
    report(error);
    return room_failed;
  };
  const auto text = read_file(file, 4 << 20);
  if (!text)
    return failed(text.error());
  const auto entry = wire::from_json_text<container::Entry>(*text);
  if (!entry)
    return failed(entry.error());
  const char* asked = ::getenv("SSH_ORIGINAL_COMMAND");
  const std::string command = !operands.empty() ? operands.front() : asked ? asked : "";
  return failed(container::enter_container(*entry, command).error());
}

int cmd_box(const Parsed& parsed) {
  if (parsed.has("enter"))
    return enter(parsed.get("enter"), parsed.operands);
  if (parsed.has("environment"))
    return parsed.has("store") ? unpack(parsed)
                               : report_usage({Code::invalid, "--environment needs --store", ""});
  if (parsed.has("image"))
    return parsed.has("store") ? bring_image(parsed)
                               : report_usage({Code::invalid, "--image needs --store", ""});
  const char* text = ::getenv(container::plan_variable);
  if (!text)
    return report_usage({Code::invalid, "no container to make",
                         "Billow itself puts this in front of a job's command"});
  const auto plan = wire::from_json_text<container::Plan>(text);
  if (!plan)
    return report(plan.error());
  std::vector<std::string> env;
  for (char** entry = environ; *entry; ++entry)
    if (const std::string_view one = *entry;
        !one.starts_with(std::string(container::plan_variable) + "="))
      env.emplace_back(one);
  const Status failed = container::run_plan(*plan, parsed.operands, shown_variables(env));
  report(failed.error());
  return failed.error().code == Code::not_found ? 127 : room_failed;
}

}  // namespace

void add_box_commands(CommandTable& table) {
  table.push_back(
      {.name = "box",
       .summary = "create the container of a job with an image or an environment, then start its "
                  "command (Billow puts it in front of the command of such jobs)",
       .example = "billow box -- python train.py",
       .run = cmd_box,
       .usage = "[--] COMMAND [ARG…]",
       .options = {box_options},
       .operands = Operands::command,
       .group = internal_group,
       .talks_to_head = false,
       .prints_json = false});
}

}  // namespace billow::client
