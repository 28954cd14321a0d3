#include "core/wire/log_frames.h"

#include <cstring>

namespace billow::wire {

bool for_each_record(std::string_view frames,
                     std::uint64_t offset,
                     const std::function<void(const LogRecord&)>& each) {
  while (!frames.empty()) {
    RecordHead head;
    if (frames.size() < sizeof(head))
      return false;
    std::memcpy(&head, frames.data(), sizeof(head));
    if (head.bytes > record_data_bytes_max || frames.size() - sizeof(head) < head.bytes)
      return false;
    if (head.stream != static_cast<std::uint8_t>(LogStream::out) &&
        head.stream != static_cast<std::uint8_t>(LogStream::err))
      return false;
    const LogRecord record{offset, static_cast<LogStream>(head.stream),
                           (head.flags & record_notice) != 0, WallTime{head.wall_ns},
                           frames.substr(sizeof(head), head.bytes)};
    each(record);
    offset = record.next_offset();
    frames.remove_prefix(sizeof(head) + head.bytes);
  }
  return true;
}

}  // namespace billow::wire
