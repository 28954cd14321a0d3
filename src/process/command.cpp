#include "process/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "process/capture.h"

namespace billow::process {

std::string CommandResult::complaint() const {
  std::string last;
  for (const std::string& text : {out, err})
    for (const std::string& line : split(text, '\n'))
      if (!trim(line).empty() && (last.empty() || !trim(line).starts_with("hint: ")))
        last = trim(line);  // the last line of our own programs may be a hint
  if (last.starts_with("billow: "))
    last.erase(0, 8);
  // Our own programs say errors as JSON when they are asked for JSON.
  if (last.starts_with("{"))
    if (const auto json = parse_json(last); json && (*json)["error"].is_string())
      last = std::string((*json)["error"].str_or(""));
  if (last.size() > 300)
    last = std::string(utf8_prefix(last, 300)) + "…";
  return last.empty() ? fmt::format("it exited with code {} and printed nothing", code) : last;
}

Result<CommandResult> run_command(const CommandSpec& spec) {
  std::vector<std::string> more;
  for (const auto& [name, value] : spec.env)
    more.push_back(name + "=" + value);
  Output output = BILLOW_TRY(
      capture({.argv = spec.argv,
               .env = our_environment(more),
               .deadline = system_clock().steady() + spec.timeout},
              {.input = spec.input, .bytes_max = limits::pool_command_output_bytes_max}));
  if (output.ended.late)
    return fail(Code::timed_out, fmt::format("{} took longer than {}", spec.argv.front(),
                                             format_duration(spec.timeout)));
  return CommandResult{.code = output.ended.code(),
                       .out = std::move(output.out),
                       .err = std::move(output.err),
                       .cut = output.cut};
}

namespace {

constexpr Duration polite = seconds(2);

// Reads until the first line, the end of the stream or the deadline. False: too late.
bool read_first_line(const Child& child, Fd& from, SteadyTime deadline, std::string& line) {
  bool late = false;
  while (line.find('\n') == std::string::npos) {
    const Duration left = deadline - system_clock().steady();
    if (left.ns <= 0) {
      child.signal(late ? SIGKILL : SIGTERM);
      if (std::exchange(late, true))
        return false;
      deadline = system_clock().steady() + polite;
      continue;
    }
    pollfd fd{from.get(), POLLIN, 0};
    if (::poll(&fd, 1, static_cast<int>(left.ms() + 1)) <= 0)
      continue;
    char buffer[4096];
    const ssize_t got = ::read(from.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      from.reset();
      break;
    }
    line.append(buffer, static_cast<std::size_t>(got));
  }
  return !late;
}

}  // namespace

Result<StartedCommand> start_command(const StartSpec& spec) {
  Pipe in = BILLOW_TRY(Pipe::create()), out = BILLOW_TRY(Pipe::create());
  Fd complaints(::open(spec.complaints.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!complaints)
    return fail_errno(spec.complaints, errno);
  Child child = BILLOW_TRY(spawn({.argv = spec.argv,
                                  .in = in.read.get(),
                                  .out = out.write.get(),
                                  .err = complaints.get(),
                                  .group = Group::session}));
  in.read.reset();
  out.write.reset();
  (void)write_all(in.write.get(), spec.input);
  in.write.reset();
  StartedCommand started;
  const bool in_time =
      read_first_line(child, out.read, system_clock().steady() + spec.patience, started.ended.out);
  if (in_time && out.read) {
    started.pid = child.release();
    return started;
  }
  const Ended ended = child.wait();
  if (!in_time)
    return fail(Code::timed_out, fmt::format("{} printed nothing within {}", spec.argv.front(),
                                             format_duration(spec.patience)));
  started.ended.code = ended.code();
  if (auto text = read_file(spec.complaints, limits::pool_command_output_bytes_max))
    started.ended.err = std::move(*text);
  return started;
}

}  // namespace billow::process
