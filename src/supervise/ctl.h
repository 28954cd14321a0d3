// Connections of agents: frames in and out, without ever waiting.
//
// A slow connection loses nothing: while its buffer is full no output is pushed, and when it drains
// it learns how long the log is, and can read the gap from the file by offset. A malformed frame
// closes the connection. An unknown frame type is skipped, since it may come from a newer agent.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>

#include "supervise/protocol.h"

namespace billow::supervise {

// What the supervisor does with a frame. Payloads are checked for length before these are called.
class CtlHandler {
 public:
  virtual void on_stdin(std::uint64_t offset, const char* data, std::uint32_t bytes) = 0;
  virtual void on_stdin_eof(std::uint64_t offset) = 0;
  virtual void on_resize(const ResizeFrame& frame) = 0;
  virtual void on_signal(const SignalFrame& frame) = 0;
  virtual void on_stop(const StopFrame& frame) = 0;
  virtual void on_deadline(const DeadlineFrame& frame) = 0;
  virtual void on_freeze(bool freeze) = 0;
  virtual StatusFrame status() = 0;
  virtual std::uint32_t replay(char* out, std::uint32_t capacity) = 0;

 protected:
  ~CtlHandler() = default;
};

class Ctl {
 public:
  explicit Ctl(CtlHandler& handler) : handler_(handler) {}
  // Listens on ctl.sock in the current directory. 0 or an errno: without it a supervisor still
  // works until its agent ends.
  int listen_here();
  bool listening() const { return listener_ >= 0; }
  bool anyone() const;  // connected
  // Takes over a connected socket.
  void adopt(int fd, Subscription subscription);

  // For the loop: what to poll, and the result. `fds` has connections_max + 1 entries.
  int poll_set(pollfd* fds);
  void on_poll(const pollfd* fds, int count);

  // To every connection that subscribed to it.
  void push_output(const OutputHead& head,
                   const char* data,
                   std::uint32_t bytes,
                   std::uint64_t log_end);
  void push_status();
  void push_stdin_ack(const StdinAckFrame& ack);
  void push_exit(const ExitRecord& record);
  void close_all();

 private:
  struct Connection {
    int fd = -1;
    Subscription subscription = Subscription::none;
    std::uint32_t in_size = 0;
    std::uint32_t out_size = 0, out_sent = 0;
    bool owes_status = false, owes_log = false, owes_ack = false;
    std::uint64_t log_end = 0;
    StdinAckFrame ack{};
    char in[sizeof(FrameHead) + frame_payload_bytes_max];
    char out[sizeof(FrameHead) + frame_payload_bytes_max];
  };
  void accept_one();
  void drop(Connection& c);
  bool send_frame(Connection& c,
                  FrameType type,
                  const void* head,
                  std::uint32_t head_bytes,
                  const void* data,
                  std::uint32_t bytes);
  void pay_debts(Connection& c);
  void read_from(Connection& c);
  bool handle(Connection& c, const FrameHead& head, const char* payload);
  void subscribe(Connection& c, const SubscribeFrame& frame);

  CtlHandler& handler_;
  int listener_ = -1;
  Connection connections_[connections_max];
};

}  // namespace billow::supervise
