// Put before the command of a job that runs in an image or an environment: makes its room and
// starts the command in it. The agent also starts it before such a job, as the job's user, to bring
// what the room is made of; it then says on its standard output, one JSON object a line, what it
// waits for ("note") and what has come of it ("image", "environment", "error"; "busy": somebody
// else is at it, ask again).
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/server_commands.h"
#include "container/enter.h"
#include "container/environment.h"
#include "container/podman.h"
#include "container/run.h"
#include "core/wire/codec.h"

extern char** environ;

namespace billow::client {
namespace {

constexpr OptionSpec box_options[] = {
    {"image", 0, "NAME", "bring this image, and say what it is"},
    {"environment", 0, "DIGEST", "unpack this environment, whose image comes on standard input"},
    {"hold", 0, nullptr, "only if it is unpacked already: keep it for the task"},
    {"limit", 0, "BYTES", "keep this much of unpacked environments, or of images"},
    {"key", 0, "KEY", "of the task that is to run in it"},
    {"enter", 0, "FILE",
     "enter the room that this file describes, for the command in SSH_ORIGINAL_COMMAND or a shell"},
    {"store", 0, "DIR", "where they are kept"},
};
constexpr int room_failed = 125;  // as container runtimes say that they, not the command, failed

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
  return tell_result("image",
                     container::provide_image({.store = parsed.get("store"),
                                               .name = *name,
                                               .key = parsed.get("key"),
                                               .bytes_max = static_cast<std::uint64_t>(*limit),
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

int enter(const std::string& file) {
  const auto text = read_file(file, 4 << 20);
  if (!text)
    return report(text.error()), room_failed;
  const auto entry = wire::from_json_text<container::Entry>(*text);
  if (!entry)
    return report(entry.error()), room_failed;
  const char* command = ::getenv("SSH_ORIGINAL_COMMAND");
  report(container::enter_room(*entry, command ? command : "").error());
  return room_failed;
}

int cmd_box(const Parsed& parsed) {
  if (parsed.has("enter"))
    return enter(parsed.get("enter"));
  if (parsed.has("environment"))
    return parsed.has("store") ? unpack(parsed)
                               : report_usage({Code::invalid, "--environment needs --store", ""});
  if (parsed.has("image"))
    return parsed.has("store") ? bring_image(parsed)
                               : report_usage({Code::invalid, "--image needs --store", ""});
  const char* text = ::getenv(container::plan_variable);
  if (!text)
    return report_usage({Code::invalid, "there is no room to make",
                         "this is put before a job's command by Billow itself"});
  const auto plan = wire::from_json_text<container::Plan>(text);
  if (!plan)
    return report(plan.error());
  std::vector<std::string> env;
  for (char** entry = environ; *entry; ++entry)
    if (const std::string_view one = *entry;
        !one.starts_with(std::string(container::plan_variable) + "="))
      env.emplace_back(one);
  const Status failed = container::run_plan(*plan, parsed.operands, env);
  report(failed.error());
  return failed.error().code == Code::not_found ? 127 : room_failed;
}

}  // namespace

void add_box_commands(CommandTable& table) {
  table.push_back({.name = "box",
                   .summary = "make the room of a job with an image or an environment, then start "
                              "its command (put before the command of such jobs)",
                   .example = "billow box -- python train.py",
                   .run = cmd_box,
                   .usage = "[--] COMMAND [ARG…]",
                   .options = {box_options},
                   .operands = Operands::command,
                   .group = "head",
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
