// The framing of a job's log: each piece of output is a RecordHead and its bytes. The supervisor
// writes it to the log's files, agents send it over the wire unchanged, the head reads it. The
// layout is little-endian and only ever grows. No library beyond <cstdint>: the supervisor includes
// this.
#pragma once

#include <cstdint>

namespace billow::wire {

struct RecordHead {
  std::uint32_t bytes;  // of data after this head
  std::uint8_t stream;  // LogStream
  std::uint8_t flags;   // record_*
  std::uint16_t reserved;
  std::int64_t wall_ns;
};
enum class LogStream : std::uint8_t { out = 1, err = 2 };
inline constexpr std::uint8_t record_notice = 1;    // written by Billow, not by the job
inline constexpr std::uint8_t record_unlogged = 2;  // sent live; the disk would not take it
inline constexpr std::uint32_t record_data_bytes_max = 64u << 10;

}  // namespace billow::wire
