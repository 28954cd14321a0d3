#include "gateway/hand_over.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "net/sockets.h"
#include "process/passed_descriptors.h"

namespace billow::gateway {
namespace {

constexpr std::size_t listeners_max = 64;
constexpr std::size_t text_bytes_max = 64 << 10;
constexpr int patience_ms = 10'000;

std::string socket_path(const std::string& directory) {
  return directory + "/hand-over.sock";
}

// One line for each socket, in the same order.
bool send_listeners(int to, const std::vector<HandedListener>& listeners) {
  std::string text;
  std::vector<int> fds;
  for (const HandedListener& each : listeners) {
    text += each.asked + " " + each.bound + "\n";
    fds.push_back(each.fd->get());
  }
  if (fds.empty() || fds.size() > listeners_max || text.size() > text_bytes_max)
    return false;
  const iovec part{text.data(), text.size()};
  return send_with_descriptors(to, {&part, 1}, fds) == static_cast<ssize_t>(text.size());
}

Result<std::vector<HandedListener>> receive_listeners(int from) {
  std::string text(text_bytes_max, '\0');
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * listeners_max)] = {};
  iovec part{text.data(), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(from, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0)
    return fail(Code::unavailable, "the running gateway did not hand over its sockets");
  text.resize(static_cast<std::size_t>(got));
  std::vector<Fd> fds = passed_descriptors(message);
  std::vector<HandedListener> out;
  for (const std::string& line : split(trim(text), '\n')) {
    const auto space = line.find(' ');
    if (space == line.npos || out.size() >= fds.size())
      break;
    out.push_back({line.substr(0, space), line.substr(space + 1),
                   std::make_shared<Fd>(std::move(fds[out.size()]))});
  }
  if (out.empty() || out.size() != fds.size())
    return fail(Code::internal,
                "the running gateway handed over something that this version does not know");
  return out;
}

bool await_readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, patience_ms) == 1;
}

}  // namespace

Result<std::unique_ptr<HandOver>> HandOver::offer(net::Loop& loop, Options options) {
  std::unique_ptr<HandOver> out(new HandOver(loop, std::move(options)));
  const std::string path = socket_path(out->options_.directory);
  (void)::unlink(path.c_str());  // of one that died: we hold the directory
  out->listener_ = BILLOW_TRY(net::listen_on({.host = {}, .port = 0, .unix_path = path}));
  out->watch_ = loop.on_readable(out->listener_.fd.get(), [at = out.get()] { at->accept(); });
  return out;
}

void HandOver::accept() {
  Fd fd = net::sockets::accept_one(listener_.fd.get());
  if (!fd || successor_ || net::sockets::peer_uid(fd.get()) != std::optional(::geteuid()))
    return;
  if (!send_listeners(fd.get(), options_.listeners()))
    return log_warn("the listening sockets could not be handed over");
  successor_ = std::move(fd);
  successor_watch_ = loop_.on_readable(successor_.get(), [this] { confirmed(); });
}

void HandOver::confirmed() {
  successor_watch_.cancel();
  char word = 0;
  if (::read(successor_.get(), &word, 1) != 1) {
    successor_.reset();  // it died before it could begin
    return;
  }
  watch_.cancel();
  listener_ = {};
  options_.handed([this] { successor_.reset(); });
}

Result<std::vector<HandedListener>> take_over(const std::string& directory) {
  const auto addresses =
      BILLOW_TRY(net::resolve({.host = {}, .port = 0, .unix_path = socket_path(directory)}));
  const Fd fd = BILLOW_TRY(net::start_connect(addresses.front()));
  if (!await_readable(fd.get()))
    return fail(Code::unavailable, "the running gateway does not answer", "stop it, then retry");
  auto listeners = BILLOW_TRY(receive_listeners(fd.get()));
  if (::write(fd.get(), "+", 1) != 1 || !await_readable(fd.get()))
    return fail(Code::unavailable, "the running gateway did not release its sockets",
                "stop it, then retry");
  return listeners;
}

}  // namespace billow::gateway
