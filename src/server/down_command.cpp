#include "server/down_command.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "base/file.h"
#include "base/lock_file.h"
#include "base/text.h"
#include "client/frame/client.h"
#include "client/frame/connect.h"
#include "client/frame/console.h"
#include "client/frame/local_heads.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "head/local_agent.h"
#include "store/store_copy.h"

namespace billow::client {

bool within(const std::function<bool()>& condition, Duration patience) {
  const SteadyTime deadline = system_clock().steady() + patience;
  while (!condition()) {
    if (system_clock().steady() > deadline)
      return false;
    ::usleep(5000);
  }
  return true;
}

namespace {

pid_t agent_pid(const std::string& data_dir) {
  if (!head::local_agent_alive(data_dir))
    return 0;
  const auto text = read_file(data_dir + "/agent/lock", 64);
  if (!text)
    return 0;
  const auto pid = parse_int(trim(*text), 2, INT32_MAX);
  return pid ? static_cast<pid_t>(*pid) : 0;
}

// A process that has ended and waits for its parent to notice is not running any more.
bool runs(pid_t pid) {
  if (::kill(pid, 0) != 0)
    return false;
  const auto stat = read_file(fmt::format("/proc/{}/stat", pid), 4096);
  const auto name_end = stat ? stat->rfind(')') : std::string::npos;
  return name_end == std::string::npos || stat->substr(name_end, 4).find('Z') == std::string::npos;
}

// Of a head of this machine, as it wrote it down; 0 where none did.
pid_t head_pid(const std::string& data_dir) {
  const auto text = read_file(data_dir + "/head.json", 1 << 16);
  if (!text)
    return 0;
  const auto json = parse_json(*text);
  return json ? static_cast<pid_t>((*json)["pid"].int_or(0)) : 0;
}

// A head that stands by answers nobody; its lock tells who it is.
pid_t standby_pid(const std::string& data_dir) {
  if (!file_exists(store_marker(data_dir)) || !lock_is_held(data_dir + "/lock"))
    return 0;
  const auto text = read_file(data_dir + "/lock", 64);
  const auto pid = text ? parse_int(trim(*text), 2, INT32_MAX) : Result<std::int64_t>(0);
  return pid ? static_cast<pid_t>(*pid) : 0;
}

// This machine's agent ends with its head: by the head's word, which it may have missed, else by a
// signal, and where it does not heed that (it is stopped, or stuck), by force. Its jobs go on under
// their supervisors either way.
Status end_agent(const std::string& data_dir) {
  const auto gone = [&] {
    return agent_pid(data_dir) == 0;
  };
  if (within(gone, seconds(2)))
    return {};
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (const pid_t agent = agent_pid(data_dir))
      ::kill(agent, signal);
    if (within(gone, seconds(5)))
      return {};
  }
  return fail(
      Code::timed_out,
      fmt::format("the agent of this machine (process {}) has not stopped", agent_pid(data_dir)),
      "see agent.log in " + data_dir);
}

// A head elsewhere must be named explicitly: a user who is logged in to the team's head must not
// end it by accident.
Status check_is_ours(const Parsed& parsed, const std::string& data_dir) {
  if (parsed.has("head") || parsed.has("data"))
    return {};
  if (const char* named = std::getenv("BILLOW_HEAD"); named && *named)
    return fail(Code::conflict,
                fmt::format("BILLOW_HEAD is set to {}, a head that others may use", named),
                fmt::format("to stop it: billow down --head {}; to stop the head of this machine: "
                            "billow down --data {}",
                            named, shell_quote(data_dir)));
  if (head_lives_in(data_dir))
    return {};
  const auto address = find_head({.head = "", .data = "", .may_start = false});
  if (!address || !address->configured)
    return {};
  return fail(Code::unavailable, "none of your heads runs on this machine",
              fmt::format("to stop the head you use, for everyone: billow down --head {}",
                          address->endpoint.text()));
}

Status wait_for_head(bool stop_jobs,
                     std::int64_t running,
                     const std::function<bool()>& has_stopped) {
  if (within(has_stopped, seconds(1)))
    return {};
  say(stop_jobs && running > 0 ? fmt::format("stopping {} running job{}, for at most a minute",
                                             running, running == 1 ? "" : "s")
                               : std::string("waiting for the head to finish what it has begun"));
  if (!within(has_stopped, stop_jobs ? minutes(2) : seconds(15)))
    return fail(Code::timed_out, "the head has not stopped yet");
  return {};
}

// What a pool's provider still runs, and bills, without the head.
std::string machines_text(const Json& answer) {
  std::string text;
  for (const Json& pool : answer["pools"].items()) {
    const std::int64_t machines = pool["machines"].int_or(0);
    const std::string name = printable(pool["pool"].str_or("?"));
    text += fmt::format(
        "pool {} keeps its {} machine{} until the next `billow up`; to end {}: billow up, then "
        "billow pool rm {}\n",
        name, machines, machines == 1 ? "" : "s", machines == 1 ? "it" : "them", name);
  }
  return text;
}

}  // namespace

// Stops the head of this machine and then its agent; with --head, only the head there. A head that
// does not answer may still have left an agent here, or stand by: these are stopped by signals.
int cmd_down(const Parsed& parsed) {
  const auto meant = meant_data_directory(parsed.get("data"));
  if (!meant)
    return report(meant.error());
  const std::string data_dir = *meant;
  if (const Status ours = check_is_ours(parsed, data_dir); !ours)
    return report(ours.error());
  const bool elsewhere = parsed.has("head");
  const pid_t agent = elsewhere ? 0 : agent_pid(data_dir),
              head = elsewhere ? 0 : head_pid(data_dir);
  auto client = Client::create(
      {.head = parsed.get("head"), .data = elsewhere ? "" : data_dir, .may_start = false});
  Result<Json> answer =
      client ? client->post("/v1/shutdown",
                            Json::object({{"stop_jobs", parsed.has("stop-jobs")}}).dump())
             : Result<Json>(pass(client.error()));
  if (!answer && !is_away(answer.error()) && answer.error().code != Code::unavailable &&
      answer.error().code != Code::unauthorized)
    return report(answer.error());
  const bool had_head = answer.has_value();
  if (had_head && !elsewhere)
    if (const Status ended = wait_for_head(
            parsed.has("stop-jobs"), (*answer)["running"].int_or(0),
            [&] { return !file_exists(data_dir + "/head.json") && (head == 0 || !runs(head)); });
        !ended)
      return report({Code::timed_out, ended.error().message, "see head.log in " + data_dir});
  if (!elsewhere)
    if (const Status ended = end_agent(data_dir); !ended)
      return report(ended.error());
  if (const pid_t standby = had_head || elsewhere ? 0 : standby_pid(data_dir)) {
    ::kill(standby, SIGTERM);
    if (!within([&] { return standby_pid(data_dir) != standby; }, seconds(10)))
      return report(
          {Code::timed_out, "the standby head has not stopped yet", "see head.log in " + data_dir});
    print("stopped the standby head of this machine; the leading head keeps running\n");
    return 0;
  }
  if (!had_head && elsewhere)
    return report(answer.error());
  const std::string where = data_dir == data_directory("") || elsewhere || parsed.has("data")
                                ? ""
                                : fmt::format(" (it ran in {})", data_dir);
  if (!had_head) {
    print(agent ? "no head was running; stopped the agent of this machine\n"
                : "no head was running\n");
    return 0;
  }
  const std::int64_t running = (*answer)["running"].int_or(0);
  if (running > 0 && !parsed.has("stop-jobs"))
    print(fmt::format(
        "billow has stopped{}; {} running job{} on, and the next `billow up{}` adopts {}\n", where,
        running, running == 1 ? " goes" : "s go",
        where.empty() ? "" : " --data " + shell_quote(data_dir), running == 1 ? "it" : "them"));
  else
    print(fmt::format("billow has stopped{}\n", where));
  if (const std::int64_t served = (*answer)["endpoints"].int_or(0);
      served > 0 && !parsed.has("stop-jobs"))
    print(
        fmt::format("{} endpoint{} served with the replicas that run; to stop them: billow up, "
                    "then billow down --stop-jobs\n",
                    served, served == 1 ? " is still" : "s are still"));
  print(machines_text(*answer));
  return 0;
}

}  // namespace billow::client
