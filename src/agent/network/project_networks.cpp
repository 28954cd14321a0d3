#include "agent/network/project_networks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "agent/network/route_netlink.h"
#include "base/log.h"
#include "base/text.h"
#include "process/aside.h"
#include "supervise/protocol.h"

namespace billow::agent {
namespace {

constexpr int loopback = 1;
constexpr const char* bridge_name = "switch";
constexpr const char* job_device = "eth0";
// All jobs of the project are in this block, and nothing else is reached through it.
constexpr int block_bits = 16;
constexpr unsigned first_host = 2, hosts_count = 65'000;

AddressBlock address_of(unsigned host) {
  return {false,
          {100, 64, static_cast<unsigned char>(host >> 8), static_cast<unsigned char>(host)},
          32};
}

Result<Fd> this_network() {
  Fd network(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!network)
    return fail_errno("/proc/thread-self/ns/net", errno);
  return network;
}

// Without it the kernel gives every device an address of its own.
Status without_v6(const char* device) {
  const std::string path = fmt::format("/proc/sys/net/ipv6/conf/{}/disable_ipv6", device);
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd)
    return errno == ENOENT ? Status{} : Status(fail_errno(path, errno));
  return write_all(fd.get(), "1");
}

Result<Fd> make_switch() {
  Fd network;
  BILLOW_TRY_VOID(process::run_aside({}, [&]() -> Status {
    if (::unshare(CLONE_NEWNET) != 0)
      return fail_errno("make a network namespace", errno);
    network = BILLOW_TRY(this_network());
    BILLOW_TRY_VOID(without_v6("default"));
    RouteNetlink routes = BILLOW_TRY(RouteNetlink::open());
    BILLOW_TRY_VOID(routes.add_bridge(bridge_name));
    return routes.set_up(RouteNetlink::device(bridge_name));
  }));
  return network;
}

Result<Fd> make_job_network(int of_switch, TaskId task, AddressBlock address) {
  Fd network;
  BILLOW_TRY_VOID(process::run_aside({}, [&]() -> Status {
    if (::unshare(CLONE_NEWNET) != 0)
      return fail_errno("make a network namespace", errno);
    network = BILLOW_TRY(this_network());
    BILLOW_TRY_VOID(without_v6("default"));
    RouteNetlink routes = BILLOW_TRY(RouteNetlink::open());
    return routes.set_up(loopback);
  }));
  BILLOW_TRY_VOID(process::run_aside({.network = of_switch, .user = {}}, [&]() -> Status {
    RouteNetlink routes = BILLOW_TRY(RouteNetlink::open());
    const std::string port = fmt::format("j{}", task.value % 1'000'000'000'000);
    BILLOW_TRY_VOID(routes.add_pair(port, {.name = job_device, .network = network.get()}));
    BILLOW_TRY_VOID(
        routes.set_master(RouteNetlink::device(port), RouteNetlink::device(bridge_name)));
    return routes.set_up(RouteNetlink::device(port));
  }));
  BILLOW_TRY_VOID(process::run_aside({.network = network.get(), .user = {}}, [&]() -> Status {
    RouteNetlink routes = BILLOW_TRY(RouteNetlink::open());
    const int device = RouteNetlink::device(job_device);
    address.bits = block_bits;
    BILLOW_TRY_VOID(routes.add_address(device, address));
    return routes.set_up(device);
  }));
  return network;
}

bool is_host_name(const std::string& name) {
  return !name.empty() && name.size() < 64 && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-';
         });
}

// Whether a job's own name can be added for it: hosts are compared without case, and job-N is the
// name that job N has anyway.
bool is_free_name(const std::string& name) {
  const std::string plain = lower(name);
  constexpr std::string_view automatic = "job-";
  return is_host_name(name) && plain != "localhost" &&
         !(plain.starts_with(automatic) &&
           std::ranges::all_of(plain.substr(automatic.size()),
                               [](char c) { return c >= '0' && c <= '9'; }));
}

}  // namespace

const ProjectNetworks::Joined* ProjectNetworks::of_project(const std::string& project) const {
  const auto found = std::ranges::find_if(
      members_, [&](const auto& one) { return one.second.member.project == project; });
  return found == members_.end() ? nullptr : &found->second;
}

std::string ProjectNetworks::free_address(const std::string& project) const {
  std::set<std::string> used;
  for (const auto& [task, joined] : members_)
    if (joined.member.project == project)
      used.insert(joined.member.address);
  for (unsigned host = first_host; host < hosts_count; ++host)
    if (std::string text = address_of(host).text(); !used.contains(text))
      return text;
  return {};
}

Result<JobNetwork> ProjectNetworks::join(TaskId task, Member member) {
  BILLOW_TRY_VOID(check_can_make_networks());
  member.address = free_address(member.project);
  if (member.address.empty())
    return fail(Code::exhausted, "no address is free in the project's network on this node");
  const Joined* other = of_project(member.project);
  Fd of_switch(other ? ::fcntl(other->network.get(), F_DUPFD_CLOEXEC, 0) : -1);
  if (!of_switch)
    of_switch = BILLOW_TRY(make_switch());
  const AddressBlock address = BILLOW_TRY(AddressBlock::parse(member.address));
  JobNetwork out;
  out.network = BILLOW_TRY(make_job_network(of_switch.get(), task, address));
  out.life = Fd(::fcntl(of_switch.get(), F_DUPFD_CLOEXEC, 0));
  struct stat info {};
  if (!out.life || ::fstat(out.network.get(), &info) != 0)
    return fail_errno("the job's network", errno);
  out.inode = info.st_ino;
  out.address = member.address;
  members_.insert_or_assign(task, Joined{std::move(member), std::move(of_switch)});
  return out;
}

void ProjectNetworks::adopt(TaskId task, Member member, int supervisor) {
  const std::string path = fmt::format("/proc/{}/fd/{}", supervisor, supervise::fd_network_life);
  Fd network(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!network || ::ioctl(network.get(), NS_GET_NSTYPE) != CLONE_NEWNET)
    return log_warn("task {}: the network of its project was not found again", task.value);
  members_.insert_or_assign(task, Joined{std::move(member), std::move(network)});
}

std::string ProjectNetworks::hosts(const std::string& project) const {
  std::string text = "127.0.0.1 localhost\n::1 localhost\n";
  for (const auto& [task, joined] : members_) {
    const Member& member = joined.member;
    if (member.project != project)
      continue;
    text += fmt::format("{} job-{}", member.address, member.job);
    if (is_free_name(member.name))
      text += " " + member.name;
    text += "\n";
  }
  return text;
}

}  // namespace billow::agent
