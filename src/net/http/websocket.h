// A WebSocket (RFC 6455), client or server side, on the loop. Messages arrive whole and bounded;
// sending is queued and bounded.
//
// Overflow rule: if a slow peer would make the queue exceed its limit, the queue is dropped and the
// socket closes with 1013 ("try again later"); the peer reconnects and resumes by offset. A peer
// that does not answer a ping in time is disconnected.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "base/result.h"

namespace billow::net {

class WebSocket {
 public:
  struct Options {
    std::string subprotocol;
    std::size_t message_bytes_max = limits::ws_message_bytes_max;  // more closes with 1009
    std::size_t queue_bytes_max = limits::stream_buffer_bytes_max;
    Duration ping_interval = limits::ws_ping_interval;
    Duration pong_timeout = limits::ws_pong_timeout;
  };
  struct Closed {
    int code = 1006;  // 1006: disconnected without a close frame
    std::string reason;
  };
  static constexpr int close_normal = 1000, close_going_away = 1001, close_protocol_error = 1002,
                       close_bad_text = 1007, close_policy = 1008, close_too_large = 1009,
                       close_internal_error = 1011, close_slow_reader = 1013;

  virtual ~WebSocket() = default;
  // False when it is closed or the queue overflowed (which closes it).
  virtual bool send_text(std::string_view text) = 0;
  virtual bool send_binary(std::string_view data) = 0;
  virtual void on_message(std::function<void(std::string_view data, bool binary)>
                              fn) = 0;                               // held back until this is set
  virtual void on_close(std::function<void(const Closed&)> fn) = 0;  // once
  virtual void on_drain(std::function<void()> fn) = 0;  // whenever a backlog has been written
  virtual void close(int code = close_normal, std::string_view reason = {}) = 0;
  virtual void abort() = 0;  // without waiting for the peer's close frame
  virtual std::size_t buffered() const = 0;
  virtual bool open() const = 0;
  // Backpressure for callers that forward messages.
  virtual void pause() = 0;
  virtual void resume() = 0;
};

}  // namespace billow::net
