#include "privileged/helper/server.h"

#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "agent/isolate/peer.h"
#include "base/log.h"
#include "core/wire/codec.h"

namespace billow::privileged {
namespace {

// The agent has one. Each start by systemd has one for a moment.
constexpr std::size_t connections_max = 64;
constexpr int tick_ms = 1000;
constexpr int backlog = 64;

struct Connection {
  Fd fd;
  unsigned uid = 0;
};

Result<Fd> listen_on(const Helper::Options& options) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (options.socket.size() >= sizeof address.sun_path)
    return fail(Code::invalid, fmt::format("the path {} is too long for a socket", options.socket));
  std::memcpy(address.sun_path, options.socket.data(), options.socket.size());
  Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener)
    return fail_errno("socket", errno);
  ::unlink(options.socket.c_str());
  // Nobody but the agent's group and root can connect, and `answer` asks who it is.
  const mode_t before = ::umask(0177);
  const int bound =
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = errno;
  ::umask(before);
  if (bound != 0)
    return fail_errno("listen at " + options.socket, error);
  if (::chown(options.socket.c_str(), 0, options.agent_gid) != 0 ||
      ::chmod(options.socket.c_str(), 0660) != 0 || ::listen(listener.get(), backlog) != 0)
    return fail_errno("listen at " + options.socket, errno);
  return listener;
}

// One helper per state directory: two would give the same names to different things.
Result<Fd> lock(const std::string& state_dir) {
  BILLOW_TRY_VOID(make_directories(state_dir, 0711));
  const std::string path = state_dir + "/lock";
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd)
    return fail_errno(path, errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(Code::conflict, fmt::format("a root helper already runs on {}", state_dir));
  return fd;
}

Result<Fd> ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT})
    sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd)
    return fail_errno("signalfd", errno);
  return fd;
}

// Whoever may not ask anything is not listened to.
void accept_one(const Fd& listener, unsigned agent_uid, std::vector<Connection>& all) {
  Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd)
    return;
  const auto peer = agent::peer_of(fd.get());
  if (!peer || (peer->uid != agent_uid && peer->uid != 0))
    return log_warn("a process of uid {} tried to use the root helper",
                    peer ? std::to_string(peer->uid) : "unknown");
  if (all.size() < connections_max)
    all.push_back({std::move(fd), peer->uid});
}

// False: the connection ends. A message that is larger than it may be shows that its sender is no
// agent of ours. An answer that the other side does not read is not waited for.
bool serve_one(Helper& helper, const Connection& connection) {
  auto message = receive(connection.fd.get());
  if (!message)
    return false;
  const Helper::Answer answer = helper.answer(connection.uid, *message);
  std::vector<int> descriptors;
  for (const Fd& fd : answer.descriptors)
    descriptors.push_back(fd.get());
  return send(connection.fd.get(), wire::to_json_text(answer.reply), descriptors).has_value();
}

}  // namespace

Status serve(Helper::Options options) {
  const Fd ending = BILLOW_TRY(ending_signals());
  const Fd locked = BILLOW_TRY(lock(options.state_dir));
  const std::unique_ptr<Helper> helper = BILLOW_TRY(Helper::create(options));
  const Fd listener = BILLOW_TRY(listen_on(options));
  log_info("the root helper answers uid {} at {}", options.agent_uid, options.socket);
  std::vector<Connection> connections;
  for (;;) {
    std::vector<pollfd> fds = {{ending.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}};
    for (const Connection& one : connections)
      fds.push_back({one.fd.get(), POLLIN, 0});
    if (::poll(fds.data(), fds.size(), tick_ms) < 0 && errno != EINTR)
      return fail_errno("poll", errno);
    if (fds[0].revents != 0)
      break;
    for (std::size_t i = fds.size(); i-- > 2;)
      if (fds[i].revents != 0 && !serve_one(*helper, connections[i - 2]))
        connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i - 2));
    if (fds[1].revents != 0)
      accept_one(listener, options.agent_uid, connections);
    helper->tick();
  }
  ::unlink(options.socket.c_str());
  return {};
}

}  // namespace billow::privileged
