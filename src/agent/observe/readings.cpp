#include "agent/observe/readings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "agent/observe/proc_stats.h"
#include "base/file.h"
#include "base/text.h"

namespace billow::agent {
namespace {

std::vector<std::string> words(std::string_view line) {
  std::vector<std::string> out;
  for (std::string& word : split(line, ' '))
    if (!word.empty())
      out.push_back(std::move(word));
  return out;
}

struct NodeTotals {
  std::int64_t cpu_busy_ticks = -1, net_rx = -1, net_tx = -1, disk_read = -1, disk_write = -1;
};

// Whole disks only: sda and nvme0n1, not partitions, loop devices, RAM disks or device mappings.
bool whole_disk(const std::string& name) {
  for (const char* not_one : {"loop", "ram", "dm-", "md", "zram", "sr"})
    if (name.starts_with(not_one))
      return false;
  if (name.starts_with("nvme") || name.starts_with("mmcblk"))
    return name.find('p') == std::string::npos;
  return name.empty() || name.back() < '0' || name.back() > '9';
}

NodeTotals node_totals(const std::string& proc) {
  NodeTotals out;
  if (const auto stat = read_file(proc + "/stat", 1 << 20)) {
    const auto fields =
        words(split(*stat, '\n').front());  // cpu user nice system idle iowait irq softirq steal
    if (fields.size() > 8)
      out.cpu_busy_ticks = std::atoll(fields[1].c_str()) + std::atoll(fields[2].c_str()) +
                           std::atoll(fields[3].c_str()) + std::atoll(fields[6].c_str()) +
                           std::atoll(fields[7].c_str());
  }
  if (const auto net = read_file(proc + "/net/dev", 1 << 20)) {
    out.net_rx = out.net_tx = 0;
    for (const std::string& line : split(*net, '\n')) {
      const auto colon = line.find(':');
      if (colon == std::string::npos || trim(line.substr(0, colon)) == "lo")
        continue;
      const auto fields = words(std::string_view(line).substr(colon + 1));
      if (fields.size() < 9)
        continue;
      out.net_rx += std::atoll(fields[0].c_str());
      out.net_tx += std::atoll(fields[8].c_str());
    }
  }
  if (const auto disks = read_file(proc + "/diskstats", 1 << 20)) {
    out.disk_read = out.disk_write = 0;
    for (const std::string& line : split(*disks, '\n')) {
      const auto fields = words(line);
      if (fields.size() < 10 || !whole_disk(fields[2]))
        continue;
      out.disk_read += std::atoll(fields[5].c_str()) * 512;
      out.disk_write += std::atoll(fields[9].c_str()) * 512;
    }
  }
  return out;
}

std::int64_t kib_per_s(std::int64_t before, std::int64_t now, Duration time) {
  if (before < 0 || now < 0 || time.ns <= 0)
    return -1;
  return static_cast<std::int64_t>(static_cast<double>(std::max<std::int64_t>(0, now - before)) /
                                   1024.0 / time.seconds());
}

}  // namespace

void UsageReader::read(SteadyTime now,
                       const std::vector<std::pair<TaskId, int>>& supervisors,
                       wire::agent_v1::Heartbeat& beat) {
  const Duration time = now - at_;
  const NodeTotals totals = node_totals(proc_);
  static const std::int64_t tick_ns = 1'000'000'000 / std::max(1L, ::sysconf(_SC_CLK_TCK));
  if (at_.ns != 0) {
    if (cpu_busy_ticks_ >= 0 && totals.cpu_busy_ticks >= cpu_busy_ticks_)
      beat.cpu_used_milli = static_cast<std::int64_t>(
          static_cast<double>((totals.cpu_busy_ticks - cpu_busy_ticks_) * tick_ns) * 1000.0 /
          static_cast<double>(std::max<std::int64_t>(1, time.ns)));
    beat.net_rx_kib_s = kib_per_s(net_rx_, totals.net_rx, time);
    beat.net_tx_kib_s = kib_per_s(net_tx_, totals.net_tx, time);
    beat.disk_read_kib_s = kib_per_s(disk_read_, totals.disk_read, time);
    beat.disk_write_kib_s = kib_per_s(disk_write_, totals.disk_write, time);
  }
  cpu_busy_ticks_ = totals.cpu_busy_ticks;
  net_rx_ = totals.net_rx;
  net_tx_ = totals.net_tx;
  disk_read_ = totals.disk_read;
  disk_write_ = totals.disk_write;
  at_ = now;

  std::map<TaskId, Totals> seen;
  if (!supervisors.empty()) {
    const ProcessTable table = ProcessTable::read(proc_);
    for (const auto& [task, pid] : supervisors) {
      const ProcessUsage usage = usage_of(table.descendants(pid), proc_);
      wire::agent_v1::TaskReading reading;
      reading.task = task;
      reading.mem_mib = usage.rss_bytes >> 20;
      if (const auto before = tasks_.find(task); before != tasks_.end()) {
        const Duration since = now - before->second.at;
        // The counters of an ended worker are lost: if the total drops, this window is unknown.
        if (since.ns > 0 && usage.cpu_ns >= before->second.cpu_ns)
          reading.cpu_milli =
              static_cast<std::int64_t>(static_cast<double>(usage.cpu_ns - before->second.cpu_ns) *
                                        1000.0 / static_cast<double>(since.ns));
        if (usage.io_read_bytes >= before->second.read_bytes)
          reading.read_kib_s = kib_per_s(before->second.read_bytes, usage.io_read_bytes, since);
        if (usage.io_write_bytes >= before->second.write_bytes)
          reading.write_kib_s = kib_per_s(before->second.write_bytes, usage.io_write_bytes, since);
      }
      seen[task] = {usage.cpu_ns, usage.io_read_bytes, usage.io_write_bytes, now};
      beat.tasks.push_back(reading);
    }
  }
  tasks_ = std::move(seen);
}

}  // namespace billow::agent
