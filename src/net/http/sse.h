// Server-sent events: formatting and incremental parsing.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "base/result.h"

namespace billow::net {

struct SseEvent {
  std::string id;     // empty: none; the reader keeps its last
  std::string event;  // empty: "message"
  std::string data;   // may have several lines
};

std::string format_sse(const SseEvent& event);
std::string format_sse_comment(std::string_view text);  // a heartbeat; readers ignore it

class SseParser {
 public:
  using OnEvent = std::function<void(const SseEvent&)>;
  explicit SseParser(OnEvent on_event) : on_event_(std::move(on_event)) {}
  // Fails with Code::too_large when an event exceeds limits::sse_event_bytes_max.
  Status feed(std::string_view data);
  const std::string& last_id() const { return last_id_; }  // for Last-Event-ID when reconnecting

 private:
  void take_line(std::string_view line);
  OnEvent on_event_;
  std::string line_;
  bool after_cr_ = false;  // so that CR LF split over two pieces counts once
  bool first_ = true;
  bool has_data_ = false;
  SseEvent current_;
  std::string last_id_;
};

}  // namespace billow::net
