#include "agent/observe/idle_signals.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "base/text.h"

namespace billow::agent {

namespace {

std::int64_t number(std::string_view text) {
  return std::strtoll(std::string(text).c_str(), nullptr, 10);
}

// "rchar: 123" → 123
std::optional<std::int64_t> field(std::string_view text, std::string_view name) {
  const auto at = text.find(name);
  if (at == std::string_view::npos)
    return std::nullopt;
  return number(text.substr(at + name.size()));
}

void count_state(IdleSample& out, char state) {
  if (state == 't')
    ++out.traced;
  if (state == 'T')
    ++out.stopped;
  if (state == 'Z')
    ++out.zombies;
  if (state == 'D')
    ++out.blocked;
}

}  // namespace

IdleSample host_signals(SteadyTime at, const std::vector<int>& pids, const std::string& proc) {
  const std::int64_t tick_ns = 1'000'000'000 / ::sysconf(_SC_CLK_TCK),
                     page = ::sysconf(_SC_PAGESIZE);
  IdleSample out;
  out.at = at;
  std::int64_t cpu = 0, io = 0, faults = 0, rss = 0;
  bool io_known = true;
  for (const int pid : pids) {
    const std::string folder = proc + "/" + std::to_string(pid);
    const auto stat = read_file(folder + "/stat", 4096);
    if (!stat)
      continue;
    // The name may contain blanks and parentheses: count the fields after its last parenthesis,
    // beginning with the state.
    const auto close = stat->rfind(')');
    if (close == std::string::npos || close + 2 >= stat->size())
      continue;
    const std::vector<std::string> fields = split(std::string_view(*stat).substr(close + 2), ' ');
    if (fields.size() < 22)
      continue;
    ++out.processes;
    const char state = fields[0].empty() ? '?' : fields[0][0];
    count_state(out, state);
    faults += number(fields[7]) + number(fields[8]) + number(fields[9]) + number(fields[10]);
    cpu += (number(fields[11]) + number(fields[12]) + number(fields[13]) + number(fields[14])) *
           tick_ns;
    rss += number(fields[21]) * page;
    if (state == 'Z')
      continue;  // a zombie has no files to count
    const auto text = read_file(folder + "/io", 4096);
    const auto read = text ? field(*text, "rchar:") : std::nullopt,
               written = text ? field(*text, "wchar:") : std::nullopt;
    if (read && written)
      io += *read + *written;
    else
      io_known = false;
  }
  if (out.processes == 0 && !pids.empty())
    return out;  // no process could be read: everything is unknown
  out.cpu_ns = cpu;
  out.page_faults = faults;
  out.rss_mib = rss >> 20;
  if (io_known)
    out.io_bytes = io;
  return out;
}

GpuSignal gpu_signal(const GpuSample& sample,
                     std::int64_t power_limit_mw,
                     bool shared,
                     const std::vector<int>& pids) {
  const auto watts = [](const std::optional<std::int64_t>& mw) {
    return mw ? std::optional<double>(static_cast<double>(*mw) / 1000) : std::nullopt;
  };
  GpuSignal out;
  out.shared = shared;
  out.sm_active_pct = sample.sm_active_pct;
  out.dram_active_pct = sample.dram_active_pct;
  out.tensor_active_pct = sample.tensor_active_pct;
  if (sample.util_pct)
    out.util_pct = *sample.util_pct;
  if (sample.mem_util_pct)
    out.mem_util_pct = *sample.mem_util_pct;
  out.power_w = watts(sample.power_mw);
  out.power_idle_w = watts(sample.power_idle_mw);
  if (power_limit_mw > 0)
    out.power_limit_w = static_cast<double>(power_limit_mw) / 1000;
  if (sample.pcie_tx_kib_s && sample.pcie_rx_kib_s)
    out.pcie_bytes_s = static_cast<double>(*sample.pcie_tx_kib_s + *sample.pcie_rx_kib_s) * 1024;
  out.mem_used_mib = sample.mem_used_mib;
  if (!shared)
    return out;

  // On a shared card, use the memory and utilisation of the task's own processes if the driver
  // reports them for all.
  double util = 0;
  std::int64_t mem = 0;
  bool util_known = !sample.processes.empty(), mem_known = util_known;
  for (const GpuProcess& process : sample.processes) {
    if (std::find(pids.begin(), pids.end(), static_cast<int>(process.pid)) == pids.end())
      continue;
    util_known = util_known && process.sm_util_pct.has_value();
    mem_known = mem_known && process.mem_mib.has_value();
    util += process.sm_util_pct.value_or(0);
    mem += process.mem_mib.value_or(0);
  }
  if (util_known) {
    out.util_pct = util;
    out.util_is_ours = true;
  }
  out.mem_used_mib = mem_known ? std::optional<std::int64_t>(mem) : std::nullopt;
  return out;
}

}  // namespace billow::agent
