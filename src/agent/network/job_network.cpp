#include "agent/network/job_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agent/network/catch_all.h"
#include "agent/network/reach_rules.h"
#include "agent/network/route_netlink.h"
#include "agent/network/uplink.h"
#include "base/limits.h"
#include "process/aside.h"
#include "process/call_filter_linux.h"
#include "process/spawn.h"

namespace billow::agent {
namespace {

constexpr int loopback = 1;  // its number in every namespace
constexpr int backlog = 128;

// What is not on the Internet, besides private_blocks(): this network, link-local addresses,
// protocol assignments, benchmarks, multicast and reserved ones.
const AddressBlock closed[] = {
    {false, {0}, 8},   {false, {169, 254}, 16},  {false, {192, 0, 0}, 24}, {false, {198, 18}, 15},
    {false, {224}, 3}, {true, {0xfe, 0x80}, 10}, {true, {0xfe, 0xc0}, 10}, {true, {0xff}, 8},
};

struct Sockets {
  Fd connections, packets;
  std::vector<Fd> answers;  // not bound yet: one for each port that packets come back from
};

Result<Fd> socket_for_both(int type) {
  Fd fd(::socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int off = 0, on = 1;
  if (!fd || ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0 ||
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on) != 0 ||
      ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, &on, sizeof on) != 0 ||
      ::setsockopt(fd.get(), IPPROTO_IP, IP_RECVORIGDSTADDR, &on, sizeof on) != 0)
    return fail_errno("make a socket for IPv4 and IPv6", errno);
  return fd;
}

Status bind_somewhere(int fd) {
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0)
    return fail_errno("bind a socket in the job's network", errno);
  return {};
}

Result<Sockets> make_sockets() {
  Sockets out;
  out.connections = BILLOW_TRY(socket_for_both(SOCK_STREAM));
  BILLOW_TRY_VOID(bind_somewhere(out.connections.get()));
  if (::listen(out.connections.get(), backlog) != 0)
    return fail_errno("listen in the job's network", errno);
  out.packets = BILLOW_TRY(socket_for_both(SOCK_DGRAM));
  BILLOW_TRY_VOID(bind_somewhere(out.packets.get()));
  for (std::size_t i = 0; i < limits::uplink_packet_ports_max; ++i)
    out.answers.push_back(BILLOW_TRY(socket_for_both(SOCK_DGRAM)));
  return out;
}

struct Shape {
  std::vector<AddressBlock> allowed, name_servers;
  bool v6 = false;  // the node reaches the Internet by IPv6
};

bool is_loopback(const AddressBlock& address) {
  static const AddressBlock v4{false, {127}, 8},
      v6{true, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128};
  return address.within(v4) || address.within(v6);
}

Status shape_network(const Shape& shape) {
  RouteNetlink routes = BILLOW_TRY(RouteNetlink::open());
  BILLOW_TRY_VOID(routes.set_up(loopback));
  BILLOW_TRY_VOID(routes.add_address(loopback, job_v4));
  BILLOW_TRY_VOID(routes.add_address(loopback, job_v6));
  const auto add = [&](RouteKind kind, const AddressBlock& block) {
    return routes.add_route(kind, block, loopback, block.v6 ? &job_v6 : &job_v4);
  };
  BILLOW_TRY_VOID(add(RouteKind::here, {false, {}, 0}));
  // Otherwise programs would prefer IPv6 addresses that the node cannot reach.
  if (shape.v6)
    BILLOW_TRY_VOID(add(RouteKind::here, {true, {}, 0}));
  for (const AddressBlock& block : private_blocks())
    BILLOW_TRY_VOID(add(RouteKind::unreachable, block));
  for (const AddressBlock& block : closed)
    BILLOW_TRY_VOID(add(RouteKind::unreachable, block));
  for (const AddressBlock& block : shape.allowed)
    BILLOW_TRY_VOID(add(RouteKind::here, block));
  for (const AddressBlock& server : shape.name_servers)
    if (!is_loopback(server))
      BILLOW_TRY_VOID(add(RouteKind::here, server));
  return {};
}

struct Made {
  Fd network;
  Sockets sockets;
};

Result<Made> make_namespace(const Shape& shape) {
  Made made;
  BILLOW_TRY_VOID(process::run_aside({}, [&]() -> Status {
    if (::unshare(CLONE_NEWNET) != 0)
      return fail_errno("make a network namespace", errno);
    made.network = Fd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!made.network)
      return fail_errno("/proc/thread-self/ns/net", errno);
    BILLOW_TRY_VOID(shape_network(shape));
    // The uplink answers from any port; in its own network a job may use them all, too.
    constexpr const char* ports = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    const Fd first(::open(ports, O_WRONLY | O_CLOEXEC));
    if (!first)
      return fail_errno(ports, errno);
    BILLOW_TRY_VOID(write_all(first.get(), "0"));
    made.sockets = BILLOW_TRY(make_sockets());
    return {};
  }));
  return made;
}

Status start_uplink(
    const InternetWish& wish, const Shape& shape, const Made& made, int link, int life) {
  process::Spawn request;
  request.argv = {wish.program, "uplink"};
  for (const AddressBlock& block : shape.allowed)
    request.argv.insert(request.argv.end(), {"--allow", block.text()});
  for (const AddressBlock& server : shape.name_servers)
    request.argv.insert(request.argv.end(), {"--name-server", server.text()});
  request.env.emplace();
  request.cwd = "/";
  request.identity = wish.identity;
  request.cgroups = wish.cgroups;
  request.fds = {{life, uplink_fds::life},
                 {link, uplink_fds::link},
                 {made.sockets.connections.get(), uplink_fds::connections},
                 {made.sockets.packets.get(), uplink_fds::packets}};
  int as = uplink_fds::first_answer;
  for (const Fd& answer : made.sockets.answers)
    request.fds.push_back({answer.get(), as++});
  request.group = process::Group::session;
  request.detached = true;
  request.refused_calls = process::strict_rules | process::no_rare_calls;
  request.open_files = 2 * limits::uplink_connections_max + limits::uplink_flows_max +
                       limits::uplink_packet_ports_max + 64;
  BILLOW_TRY(process::spawn(request));
  return {};
}

}  // namespace

Status check_can_make_networks() {
  if (::geteuid() == 0)
    return {};
  return fail(Code::unsupported,
              "this node cannot give jobs a network of their own: its agent does not run as root",
              "use --network none, or a node whose agent runs as root");
}

Result<JobNetwork> make_internet(const InternetWish& wish) {
  BILLOW_TRY_VOID(check_can_make_networks());
  Shape shape{wish.allowed, name_servers_in(read_file(wish.resolv_conf, 64 << 10).value_or("")),
              false};
  RouteNetlink outside = BILLOW_TRY(RouteNetlink::open());
  const AddressBlock far = BILLOW_TRY(AddressBlock::parse("2000::1"));
  const auto v6 = outside.look_up(true, far.bytes.data());
  shape.v6 = v6 && *v6 == RouteKind::elsewhere;
  Made made = BILLOW_TRY(make_namespace(shape));
  CatchAll caught{.network = made.network.get(),
                  .connections = made.sockets.connections.get(),
                  .packets = made.sockets.packets.get(),
                  .own_v4 = job_v4,
                  .own_v6 = job_v6,
                  .name_servers = {}};
  std::ranges::copy_if(shape.name_servers, std::back_inserter(caught.name_servers), is_loopback);
  const auto link = catch_all(caught);
  if (!link)
    return pass(Error(link.error()).in("this node cannot give jobs a network of their own"));
  process::Pipe life = BILLOW_TRY(process::Pipe::create());
  BILLOW_TRY_VOID(start_uplink(wish, shape, made, link->get(), life.read.get()));
  struct stat info {};
  if (::fstat(made.network.get(), &info) != 0)
    return fail_errno("the job's network", errno);
  return JobNetwork{std::move(made.network), std::move(life.write), info.st_ino, {}};
}

std::string describe_job_networks() {
  const Status root = check_can_make_networks();
  const auto made = root ? make_namespace({}) : Result<Made>(pass(root.error()));
  Result<Fd> link = made ? catch_all({.network = made->network.get(),
                                      .connections = made->sockets.connections.get(),
                                      .packets = made->sockets.packets.get(),
                                      .own_v4 = job_v4,
                                      .own_v6 = job_v6,
                                      .name_servers = {}})
                         : Result<Fd>(pass(made.error()));
  if (link)
    return "networks of jobs: --network internet works (network namespaces and BPF)";
  return fmt::format(
      "networks of jobs: not available ({}): jobs with --network internet are refused",
      link.error().message);
}

}  // namespace billow::agent
