#include "net/http/sse.h"

namespace billow::net {
namespace {

// A line break inside an id or a name would start another field.
void append_single_line(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (char c : value)
    if (c != '\r' && c != '\n' && c != '\0')
      out += c;
  out += '\n';
}

}  // namespace

std::string format_sse(const SseEvent& event) {
  std::string out;
  out.reserve(event.data.size() + event.id.size() + event.event.size() + 32);
  if (!event.id.empty())
    append_single_line(out, "id", event.id);
  if (!event.event.empty())
    append_single_line(out, "event", event.event);
  std::string_view rest = event.data;
  for (;;) {
    const auto end = rest.find_first_of("\r\n");
    out.append("data: ").append(rest.substr(0, end)).append("\n");
    if (end == rest.npos)
      break;
    rest.remove_prefix(end + (rest.substr(end, 2) == "\r\n" ? 2 : 1));
  }
  out += '\n';
  return out;
}

std::string format_sse_comment(std::string_view text) {
  std::string out;
  append_single_line(out, "", text);
  return out + "\n";
}

Status SseParser::feed(std::string_view data) {
  while (!data.empty()) {
    if (after_cr_) {
      after_cr_ = false;
      if (data[0] == '\n') {
        data.remove_prefix(1);
        continue;
      }
    }
    const auto end = data.find_first_of("\r\n");
    line_.append(data.substr(0, end));
    if (line_.size() + current_.data.size() > limits::sse_event_bytes_max)
      return fail(Code::too_large, fmt::format("a server-sent event is larger than {} bytes",
                                               limits::sse_event_bytes_max));
    if (end == data.npos)
      return {};
    after_cr_ = data[end] == '\r';
    data.remove_prefix(end + 1);
    const std::string line = std::exchange(line_, {});
    take_line(line);
  }
  return {};
}

void SseParser::take_line(std::string_view line) {
  if (std::exchange(first_, false) && line.starts_with("\xef\xbb\xbf"))
    line.remove_prefix(3);
  if (line.empty()) {
    if (has_data_) {
      current_.data.pop_back();  // each data line added its own line break
      current_.id = last_id_;
      on_event_(current_);
    }
    current_ = {};
    has_data_ = false;
    return;
  }
  const auto colon = std::min(line.find(':'), line.size());
  const auto field = line.substr(0, colon);
  auto value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' '))
    value.remove_prefix(1);
  if (field == "data") {
    current_.data.append(value).append("\n");
    has_data_ = true;
  } else if (field == "event") {
    current_.event = value;
  } else if (field == "id" && value.find('\0') == value.npos) {
    last_id_ = value;
  }
}

}  // namespace billow::net
