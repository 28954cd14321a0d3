#include "agent/observe/sampler.h"

#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "agent/observe/egress.h"
#include "agent/observe/idle_signals.h"
#include "agent/observe/proc_stats.h"
#include "base/file.h"

namespace billow::agent {
namespace {

constexpr int tcp_established = 1;
constexpr std::size_t fds_per_process_max =
    4096;  // a process with more is a busy server, which other signals show

void take_sockets(const char* data, std::size_t size, Sockets& out, bool& done) {
  for (auto* header = reinterpret_cast<const nlmsghdr*>(data);
       NLMSG_OK(header, static_cast<std::uint32_t>(size)); header = NLMSG_NEXT(header, size)) {
    if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) {
      done = true;
      return;
    }
    const auto* message = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
    SocketUse use;
    use.established = message->idiag_state == tcp_established;
    use.cookie =
        static_cast<std::uint64_t>(message->id.idiag_cookie[1]) << 32 | message->id.idiag_cookie[0];
    unsigned char to[16];
    std::memcpy(to, message->id.idiag_dst, sizeof to);
    use.leaves = is_public(message->idiag_family, to);
    auto left = static_cast<int>(NLMSG_PAYLOAD(header, sizeof *message));
    for (const auto* attribute = reinterpret_cast<const rtattr*>(message + 1);
         RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
      if (attribute->rta_type != INET_DIAG_INFO)
        continue;
      tcp_info info{};
      std::memcpy(&info, RTA_DATA(attribute),
                  std::min<std::size_t>(sizeof info, RTA_PAYLOAD(attribute)));
      use.rx_bytes = static_cast<std::int64_t>(info.tcpi_bytes_received);
      use.tx_bytes = static_cast<std::int64_t>(info.tcpi_bytes_acked);
    }
    if (message->idiag_inode != 0)
      out.held[message->idiag_inode] = use;
    else if (use.tx_bytes > 0)
      out.closed[use.cookie] = use;
  }
}

}  // namespace

Sockets tcp_sockets() {
  Sockets out;
  Fd fd(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd)
    return out;
  for (const unsigned char family : {AF_INET, AF_INET6}) {
    struct {
      nlmsghdr header;
      inet_diag_req_v2 request;
    } ask{};
    ask.header = {sizeof ask, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 0, 0};
    ask.request.sdiag_family = family;
    ask.request.sdiag_protocol = IPPROTO_TCP;
    ask.request.idiag_ext = 1 << (INET_DIAG_INFO - 1);
    ask.request.idiag_states = ~0u;
    if (::send(fd.get(), &ask, sizeof ask, 0) != static_cast<ssize_t>(sizeof ask))
      return out;
    alignas(nlmsghdr) static thread_local char buffer[1 << 16];
    for (bool done = false; !done;) {
      const ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
      if (n <= 0)
        return out;
      take_sockets(buffer, static_cast<std::size_t>(n), out, done);
    }
  }
  return out;
}

std::vector<std::uint64_t> socket_inodes(const std::vector<int>& pids, const std::string& proc) {
  std::vector<std::uint64_t> out;
  for (const int pid : pids) {
    const std::string folder = proc + "/" + std::to_string(pid) + "/fd";
    DIR* dir = ::opendir(folder.c_str());
    if (dir == nullptr)
      continue;
    std::size_t seen = 0;
    while (const dirent* entry = ::readdir(dir)) {
      if (entry->d_name[0] == '.' || ++seen > fds_per_process_max)
        continue;
      char target[64];
      const ssize_t n = ::readlinkat(::dirfd(dir), entry->d_name, target, sizeof target - 1);
      if (n <= 8)
        continue;
      target[n] = '\0';
      if (std::strncmp(target, "socket:[", 8) == 0)
        out.push_back(std::strtoull(target + 8, nullptr, 10));
    }
    ::closedir(dir);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::int64_t Sampler::energy_mj(const GpuSample& sample, SteadyTime now) {
  if (sample.energy_mj)
    return *sample.energy_mj;
  Integral& sum = integrals_[sample.index];
  if (sum.at.ns > 0 && sample.power_mw && now > sum.at)
    sum.mj += static_cast<double>(*sample.power_mw) * (now - sum.at).seconds();
  sum.at = now;
  return static_cast<std::int64_t>(sum.mj);
}

std::int64_t Sampler::sent(const WatchedTask& task,
                           const std::vector<std::uint64_t>& inodes,
                           const Sockets& sockets) {
  const auto [at, first] = traffic_.try_emplace(task.task);
  Traffic& traffic = at->second;
  // After a restart of the agent, bytes that a socket had already sent are not counted: the earlier
  // agent process may have counted them.
  const bool count_new = !first || task.born_here;
  std::map<std::uint64_t, std::int64_t> now;
  // The kernel counts the opening and the closing of a connection as one byte each.
  const auto take = [&](const SocketUse& socket, std::int64_t opening_and_closing) {
    const std::int64_t bytes = std::max<std::int64_t>(0, socket.tx_bytes - opening_and_closing);
    const auto before = traffic.sent.find(socket.cookie);
    if (count_new)
      traffic.total +=
          std::max<std::int64_t>(0, bytes - (before == traffic.sent.end() ? 0 : before->second));
    now[socket.cookie] = bytes;
  };
  for (const std::uint64_t inode : inodes)
    if (const auto socket = sockets.held.find(inode);
        socket != sockets.held.end() && socket->second.leaves)
      take(socket->second, 1);
  for (const auto& [cookie, bytes] : traffic.sent)
    if (const auto socket = sockets.closed.find(cookie); socket != sockets.closed.end())
      take(socket->second, 2);
  traffic.sent = std::move(now);
  return traffic.total;
}

// A grant names a card by its position in the offer, which may differ from the driver's index.
std::map<std::uint32_t, GpuSample> Sampler::look_at_cards(
    const std::map<std::size_t, int>& holders) {
  std::map<std::uint32_t, GpuSample> out;
  for (std::size_t place = 0; place < gpus_.size(); ++place) {
    const auto held = holders.find(place);
    // Process lists are needed only for shared cards, and they cost more than all other figures.
    const auto sample = backend_->sample(
        gpus_[place].index,
        {.processes = held != holders.end() && held->second > 1, .slow_pcie = false});
    if (sample)
      out[gpus_[place].index] = *sample;
  }
  return out;
}

void Sampler::add_network(const WatchedTask& task,
                          const std::vector<int>& pids,
                          const Sockets& sockets,
                          TaskSample& sample) {
  if (task.egress)
    sample.egress = *task.egress;
  sample.egress.bytes += task.tunnelled;
  if (sockets.held.empty())
    return;
  std::int64_t rx = 0, tx = 0;
  const std::vector<std::uint64_t> inodes = socket_inodes(pids);
  if (!task.egress)
    sample.egress = {sent(task, inodes, sockets) + task.tunnelled, false};
  for (const std::uint64_t inode : inodes) {
    const auto found = sockets.held.find(inode);
    if (found == sockets.held.end())
      continue;
    rx += found->second.rx_bytes;
    tx += found->second.tx_bytes;
    if (found->second.established)
      ++sample.idle.connections;
  }
  sample.idle.net_rx_bytes = rx;
  sample.idle.net_tx_bytes = tx;
}

Sampled Sampler::look(const std::vector<WatchedTask>& tasks, SteadyTime now) {
  Sampled out;
  std::map<std::size_t, int> holders;
  for (const WatchedTask& task : tasks)
    for (const GpuGrant& grant : task.gpus)
      ++holders[static_cast<std::size_t>(grant.gpu)];
  out.cards = look_at_cards(holders);
  std::erase_if(traffic_, [&](const auto& item) {
    return std::none_of(tasks.begin(), tasks.end(),
                        [&](const WatchedTask& t) { return t.task == item.first; });
  });
  if (tasks.empty())
    return out;
  const ProcessTable table = ProcessTable::read();
  const auto sockets = tcp_sockets();
  for (const WatchedTask& task : tasks) {
    std::vector<int> pids = task.cgroup.empty() ? std::vector<int>{} : cgroup_pids(task.cgroup);
    if (pids.empty() && task.pid > 0) {
      pids = table.descendants(task.pid);
      pids.push_back(task.pid);
    }
    TaskSample sample;
    sample.idle = host_signals(now, pids);
    sample.idle.output_bytes = static_cast<std::int64_t>(task.output_bytes);
    if (task.last_input.ns > 0)
      sample.idle.last_input = task.last_input;
    add_network(task, pids, sockets, sample);
    for (const GpuGrant& grant : task.gpus) {
      const auto place = static_cast<std::size_t>(grant.gpu);
      const auto card = place < gpus_.size() ? out.cards.find(gpus_[place].index) : out.cards.end();
      if (card == out.cards.end()) {
        sample.idle.gpus.emplace_back();  // a card that does not answer is unknown, not idle
        sample.energy.emplace_back();
        continue;
      }
      sample.idle.gpus.push_back(
          gpu_signal(card->second, gpus_[place].power_limit_mw, holders[place] > 1, pids));
      sample.energy.push_back(TaskSample::Energy{energy_mj(card->second, now), grant.share.milli});
    }
    out.tasks.emplace_back(task.task, std::move(sample));
  }
  return out;
}

}  // namespace billow::agent
