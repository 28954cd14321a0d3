#include "agent/task/signal_handlers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <map>
#include <string_view>

#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

struct SignalState {
  int parent = 0;
  bool handles = false;
};

SignalState signal_state(int pid, int signal) {
  SignalState out;
  const auto status = read_file(fmt::format("/proc/{}/status", pid), 64 << 10);
  if (!status)
    return out;
  for (const std::string& line : split(*status, '\n')) {
    const std::string_view text = line;
    const auto colon = text.find(':');
    if (colon == std::string_view::npos)
      continue;
    const std::string_view name = text.substr(0, colon), value = trim(text.substr(colon + 1));
    if (name == "PPid")
      out.parent = static_cast<int>(parse_int(value, 0, INT32_MAX).value_or(0));
    std::uint64_t caught = 0;
    if (name == "SigCgt" &&
        std::from_chars(value.data(), value.data() + value.size(), caught, 16).ec == std::errc())
      out.handles = (caught >> (signal - 1) & 1) != 0;
  }
  return out;
}

// Level by level below the main process, until some handle it.
std::vector<int> nearest(const std::map<int, SignalState>& states, int main_pid) {
  std::vector<int> level = {main_pid};
  while (!level.empty()) {
    std::vector<int> found, below;
    for (const int pid : level) {
      if (const auto at = states.find(pid); at != states.end() && at->second.handles)
        found.push_back(pid);
      for (const auto& [child, state] : states)
        if (state.parent == pid && child != pid)
          below.push_back(child);
    }
    if (!found.empty())
      return found;
    level = std::move(below);
  }
  return {};
}

}  // namespace

SignalTo signal_to(const std::vector<std::string>& env) {
  for (const std::string& variable : env) {
    if (variable == "BILLOW_CHECKPOINT_TO=group")
      return SignalTo::group;
    if (variable == "BILLOW_CHECKPOINT_TO=all")
      return SignalTo::all;
  }
  return SignalTo::main;
}

std::vector<int> handlers_of(int signal, const std::vector<int>& pids, int main_pid, SignalTo to) {
  if (signal < 1 || signal > 64)
    return {};
  std::map<int, SignalState> states;
  for (const int pid : pids)
    states[pid] = signal_state(pid, signal);
  states.try_emplace(main_pid, signal_state(main_pid, signal));
  if (to == SignalTo::main)
    return nearest(states, main_pid);
  std::vector<int> found;
  for (const auto& [pid, state] : states)
    if (state.handles && (to == SignalTo::all || ::getpgid(pid) == main_pid))
      found.push_back(pid);
  return found;
}

}  // namespace billow::agent
