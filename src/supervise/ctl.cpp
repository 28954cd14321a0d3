#include "supervise/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

namespace billow::supervise {

int Ctl::listen_here() {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return errno;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, file_ctl, sizeof(file_ctl));
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(fd, connections_max) != 0) {
    const int error = errno;
    close(fd);
    return error;
  }
  listener_ = fd;
  return 0;
}

bool Ctl::anyone() const {
  for (const Connection& c : connections_)
    if (c.fd >= 0)
      return true;
  return false;
}

void Ctl::adopt(int fd, Subscription subscription) {
  for (Connection& c : connections_) {
    if (c.fd >= 0)
      continue;
    c.fd = fd;
    c.subscription = subscription;
    c.in_size = c.out_size = c.out_sent = 0;
    c.owes_status = true;
    c.owes_log = c.owes_ack = false;
    return;
  }
  close(fd);  // too many connections
}

// The directory's mode keeps other users out; this does too if someone has changed the mode.
void Ctl::accept_one() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0)
    return;
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      (peer.uid != 0 && peer.uid != geteuid())) {
    close(fd);
    return;
  }
  adopt(fd, Subscription::none);
}

int Ctl::poll_set(pollfd* fds) {
  int count = 0;
  fds[count++] = {listener_, POLLIN, 0};
  for (Connection& c : connections_) {
    const bool writes = c.out_size > 0 || c.owes_status || c.owes_log || c.owes_ack;
    fds[count++] = {c.fd, static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0};
  }
  return count;
}

void Ctl::on_poll(const pollfd* fds, int count) {
  for (int i = 1; i < count; ++i) {
    Connection& c = connections_[i - 1];
    if (c.fd < 0 || c.fd != fds[i].fd)
      continue;
    if ((fds[i].revents & POLLOUT) != 0)
      pay_debts(c);
    if (c.fd >= 0 && (fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
      read_from(c);
  }
  if ((fds[0].revents & POLLIN) != 0)
    accept_one();
}

void Ctl::drop(Connection& c) {
  close(c.fd);
  c.fd = -1;
  c.subscription = Subscription::none;
}

// Sends a whole frame, or as much as fits and keeps the rest. False when the connection is still
// busy with an earlier one.
bool Ctl::send_frame(Connection& c,
                     FrameType type,
                     const void* head,
                     std::uint32_t head_bytes,
                     const void* data,
                     std::uint32_t bytes) {
  if (c.fd < 0)
    return true;
  if (c.out_size > 0)
    return false;
  FrameHead frame{head_bytes + bytes, static_cast<std::uint16_t>(type), 0};
  iovec parts[3] = {{&frame, sizeof(frame)},
                    {const_cast<void*>(head), head_bytes},
                    {const_cast<void*>(data), bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 3;
  const std::size_t total = sizeof(frame) + head_bytes + bytes;
  ssize_t sent = sendmsg(c.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) {
    drop(c);
    return true;
  }
  if (sent < 0)
    sent = 0;
  if (static_cast<std::size_t>(sent) == total)
    return true;
  std::size_t at = 0;
  for (const iovec& part : parts) {
    if (part.iov_len == 0)
      continue;  // of no address
    memcpy(c.out + at, part.iov_base, part.iov_len);
    at += part.iov_len;
  }
  c.out_size = static_cast<std::uint32_t>(total);
  c.out_sent = static_cast<std::uint32_t>(sent);
  return true;
}

void Ctl::pay_debts(Connection& c) {
  if (c.out_size > 0) {
    const ssize_t n =
        send(c.fd, c.out + c.out_sent, c.out_size - c.out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
      return drop(c);
    if (n > 0)
      c.out_sent += static_cast<std::uint32_t>(n);
    if (c.out_sent < c.out_size)
      return;
    c.out_size = c.out_sent = 0;
  }
  if (c.owes_status && c.fd >= 0) {
    const StatusFrame frame = handler_.status();
    if (send_frame(c, FrameType::status, &frame, sizeof(frame), nullptr, 0))
      c.owes_status = false;
  }
  if (c.owes_ack && c.fd >= 0 &&
      send_frame(c, FrameType::stdin_ack, &c.ack, sizeof(c.ack), nullptr, 0))
    c.owes_ack = false;
  if (c.owes_log && c.fd >= 0) {
    const LogAdvancedFrame frame{c.log_end};
    if (send_frame(c, FrameType::log_advanced, &frame, sizeof(frame), nullptr, 0))
      c.owes_log = false;
  }
}

void Ctl::read_from(Connection& c) {
  const ssize_t n = recv(c.fd, c.in + c.in_size, sizeof(c.in) - c.in_size, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (n <= 0)
    return drop(c);
  c.in_size += static_cast<std::uint32_t>(n);
  std::uint32_t at = 0;
  while (c.in_size - at >= sizeof(FrameHead)) {
    FrameHead head;
    memcpy(&head, c.in + at, sizeof(head));
    if (head.bytes > frame_payload_bytes_max)
      return drop(c);
    if (c.in_size - at < sizeof(head) + head.bytes)
      break;
    if (!handle(c, head, c.in + at + sizeof(head)))
      return drop(c);
    if (c.fd < 0)
      return;
    at += static_cast<std::uint32_t>(sizeof(head)) + head.bytes;
  }
  c.in_size -= at;
  memmove(c.in, c.in + at, c.in_size);
}

namespace {

template <class T>
bool take(const FrameHead& head, const char* payload, T* out) {
  if (head.bytes < sizeof(T))
    return false;
  memcpy(out, payload, sizeof(T));
  return true;
}

// Passes a frame of type T on. False: it is too short.
template <class T>
bool pass_frame(const FrameHead& head,
                const char* payload,
                CtlHandler& handler,
                void (CtlHandler::*on)(const T&)) {
  T frame;
  if (!take(head, payload, &frame))
    return false;
  (handler.*on)(frame);
  return true;
}

bool pass_stdin(const FrameHead& head, const char* payload, CtlHandler& handler, bool eof) {
  StdinHead at;
  if (!take(head, payload, &at))
    return false;
  if (eof)
    handler.on_stdin_eof(at.offset);
  else
    handler.on_stdin(at.offset, payload + sizeof(at),
                     head.bytes - static_cast<std::uint32_t>(sizeof(at)));
  return true;
}

}  // namespace

// False for a frame that is too short for its type: the sender cannot be trusted further.
bool Ctl::handle(Connection& c, const FrameHead& head, const char* payload) {
  switch (static_cast<FrameType>(head.type)) {
    case FrameType::stdin_data:
      return pass_stdin(head, payload, handler_, false);
    case FrameType::stdin_eof:
      return pass_stdin(head, payload, handler_, true);
    case FrameType::resize:
      return pass_frame(head, payload, handler_, &CtlHandler::on_resize);
    case FrameType::signal:
      return pass_frame(head, payload, handler_, &CtlHandler::on_signal);
    case FrameType::stop:
      return pass_frame(head, payload, handler_, &CtlHandler::on_stop);
    case FrameType::set_deadline:
      return pass_frame(head, payload, handler_, &CtlHandler::on_deadline);
    case FrameType::freeze:
      handler_.on_freeze(true);
      return true;
    case FrameType::thaw:
      handler_.on_freeze(false);
      return true;
    case FrameType::status_request:
      c.owes_status = true;
      pay_debts(c);
      return true;
    case FrameType::subscribe: {
      SubscribeFrame frame;
      if (!take(head, payload, &frame) ||
          frame.subscription > static_cast<std::uint32_t>(Subscription::live))
        return false;
      subscribe(c, frame);
      return true;
    }
    case FrameType::status:
    case FrameType::output:
    case FrameType::log_advanced:
    case FrameType::stdin_ack:
    case FrameType::exited:
    case FrameType::replay:
      return true;
  }
  return true;  // a type of a newer agent
}

void Ctl::subscribe(Connection& c, const SubscribeFrame& frame) {
  c.subscription = static_cast<Subscription>(frame.subscription);
  if (c.subscription != Subscription::none) {
    c.owes_log = true;
    c.log_end = handler_.status().log_end;
  }
  if ((frame.flags & subscribe_replay) != 0) {
    static char buffer[replay_bytes_max];
    const std::uint32_t bytes = handler_.replay(buffer, sizeof(buffer));
    send_frame(c, FrameType::replay, nullptr, 0, buffer, bytes);
  }
  if (c.fd >= 0)
    pay_debts(c);
}

void Ctl::push_output(const OutputHead& head,
                      const char* data,
                      std::uint32_t bytes,
                      std::uint64_t log_end) {
  for (Connection& c : connections_) {
    if (c.fd < 0 || c.subscription == Subscription::none)
      continue;
    c.log_end = log_end;
    const bool pushed = c.subscription == Subscription::live && !c.owes_log &&
                        send_frame(c, FrameType::output, &head, sizeof(head), data, bytes);
    if (!pushed)
      c.owes_log = true;
  }
}

void Ctl::push_status() {
  for (Connection& c : connections_) {
    if (c.fd < 0)
      continue;
    c.owes_status = true;
    pay_debts(c);
  }
}

void Ctl::push_stdin_ack(const StdinAckFrame& ack) {
  for (Connection& c : connections_) {
    if (c.fd < 0)
      continue;
    c.ack = ack;
    c.owes_ack = true;
    pay_debts(c);
  }
}

void Ctl::push_exit(const ExitRecord& record) {
  for (Connection& c : connections_) {
    if (c.fd < 0)
      continue;
    if (c.owes_log)
      pay_debts(c);
    send_frame(c, FrameType::exited, &record, sizeof(record), nullptr, 0);
  }
}

void Ctl::close_all() {
  for (Connection& c : connections_)
    if (c.fd >= 0)
      drop(c);
  if (listener_ >= 0) {
    unlink(file_ctl);
    close(listener_);
    listener_ = -1;
  }
}

}  // namespace billow::supervise
