#include "client/frame/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/json_errors.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/frame/when.h"

namespace billow::client {

bool is_closed_pipe(const Error& error) {
  return error.message.ends_with(::strerror(EPIPE));
}

void print(std::string_view text) {
  const Status written = write_all(STDOUT_FILENO, text);
  if (written)
    return;
  if (is_closed_pipe(written.error()))
    std::_Exit(128 + SIGPIPE);
  say("cannot write the output: " + written.error().message);
  std::_Exit(1);
}

void print_json(const Json& json) {
  print((look_at(STDOUT_FILENO).terminal ? json.dump_pretty() : json.dump()) + "\n");
}

void say(std::string_view line) {
  (void)write_all(STDERR_FILENO, fmt::format("billow: {}\n", line));
}

namespace {
bool errors_as_json = false;

void show_error(const Error& error) {
  if (errors_as_json) {
    const Json document = Json::object(
        {{"error", error.message}, {"hint", error.hint}, {"code", code_name(error.code)}});
    (void)write_all(STDERR_FILENO, document.dump() + "\n");
    return;
  }
  const Look look = look_at(STDERR_FILENO);
  std::string text = fmt::format("{} {}\n", painted("billow:", Colour::red, look),
                                 in_local_time(error.message, now()));
  if (!error.hint.empty())
    text += fmt::format("{} {}\n", painted("hint:", Colour::cyan, look),
                        in_local_time(error.hint, now()));
  (void)write_all(STDERR_FILENO, text);
}
}  // namespace

ErrorForm::ErrorForm(bool as_json) : before_(std::exchange(errors_as_json, as_json)) {}
ErrorForm::~ErrorForm() {
  errors_as_json = before_;
}

int report(const Error& error) {
  show_error(error);
  return is_away(error) ? exit_unreachable : exit_failed;
}

int report_usage(const Error& error) {
  show_error(error);
  return exit_usage;
}

ConnectOptions connect_options(const Parsed& parsed, bool may_start) {
  return {parsed.get("head"), parsed.get("data"), may_start};
}
Result<Client> connect_for_job(const Parsed& parsed, bool needs_gpus) {
  ConnectOptions options = connect_options(parsed, true);
  options.needs_gpus = needs_gpus;
  const OnInterrupt left("nothing was submitted");
  return Client::create(std::move(options));
}
Result<Client> connect(const Parsed& parsed, bool may_start) {
  return Client::create(connect_options(parsed, may_start));
}

Result<std::string> one_operand(const Parsed& parsed,
                                std::string_view command,
                                std::string_view what) {
  if (parsed.operands.size() != 1)
    return fail(Code::invalid,
                parsed.operands.empty() ? fmt::format("{} needs one {}", command, what)
                                        : fmt::format("{} needs one {}, not \"{}\"", command, what,
                                                      join(parsed.operands, " ")),
                fmt::format("see `billow {} --help`", command));
  return parsed.operands.front();
}

WallTime now() {
  return system_clock().wall();
}

}  // namespace billow::client
