// libFuzzer over the control socket of a supervisor, which runs as root: the bytes arrive in pieces
// over a real socket, from a peer that may stop reading. Payloads lie inside what was sent, and a
// connection that has misbehaved is closed.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "supervise/ctl.h"

namespace {

using namespace billow::supervise;

class Handler final : public CtlHandler {
 public:
  void on_stdin(std::uint64_t offset, const char* data, std::uint32_t bytes) override {
    std::uint64_t sum = offset;
    for (std::uint32_t i = 0; i < bytes; ++i)
      sum += static_cast<unsigned char>(data[i]);
    seen_ += sum;
    BILLOW_CHECK(bytes <= frame_payload_bytes_max, "no longer than a frame");
  }
  void on_stdin_eof(std::uint64_t offset) override { seen_ += offset; }
  void on_resize(const ResizeFrame& frame) override { see(frame); }
  void on_signal(const SignalFrame& frame) override { see(frame); }
  void on_stop(const StopFrame& frame) override { see(frame); }
  void on_deadline(const DeadlineFrame& frame) override { see(frame); }
  void on_freeze(bool freeze) override { seen_ += freeze ? 1 : 0; }
  StatusFrame status() override { return {}; }
  std::uint32_t replay(char* out, std::uint32_t capacity) override {
    std::memset(out, 'r', capacity);
    return capacity;
  }

 private:
  template <class T>
  void see(const T& frame) {
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &frame, sizeof frame);
    for (const unsigned char byte : bytes)
      seen_ += byte;
  }
  std::uint64_t seen_ = 0;
};

void turn(Ctl& ctl) {
  pollfd fds[connections_max + 1];
  const int count = ctl.poll_set(fds);
  for (int i = 0; i < count; ++i)
    fds[i].revents = 0;
  if (::poll(fds, static_cast<nfds_t>(count), 0) > 0)
    ctl.on_poll(fds, count);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2)
    return 0;
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return 0;
  const int small = 4096;
  (void)::setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  Handler handler;
  const auto ctl = std::make_unique<Ctl>(handler);
  ctl->adopt(pair[0], Subscription::live);
  const std::size_t piece = static_cast<std::size_t>(data[0]) * 16 + 1;
  const bool reads = data[1] & 1;
  for (std::size_t at = 2; at < size; at += piece) {
    if (::send(pair[1], data + at, std::min(piece, size - at), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
      break;
    turn(*ctl);
    const char output[] = "output of the job";
    ctl->push_output({}, output, sizeof output, at);
    ctl->push_status();
    ctl->push_stdin_ack({});
    char taken[8192];
    while (reads && ::recv(pair[1], taken, sizeof taken, MSG_DONTWAIT) > 0) {}
  }
  ctl->push_exit({});
  ctl->close_all();
  BILLOW_CHECK(!ctl->anyone(), "all connections are closed");
  ::close(pair[1]);
  return 0;
}
