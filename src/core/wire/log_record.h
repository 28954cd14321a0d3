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
// In a stream of records to a client (GET /v1/jobs/ID/logs?format=records) there are also these,
// which are not part of the log.
inline constexpr std::uint8_t stream_resume = 16;   // u64: the offset to resume at
inline constexpr std::uint8_t stream_gap = 17;      // u64: bytes of the log that were deleted
inline constexpr std::uint8_t stream_error = 18;    // text: why the rest cannot be read; the last
inline constexpr std::uint8_t stream_end = 19;      // the job's document, or nothing; the last
inline constexpr std::uint8_t record_notice = 1;    // written by Billow, not by the job
inline constexpr std::uint8_t record_unlogged = 2;  // sent live; the disk would not take it
// A job's variable that asks for both streams as one: `billow submit` sets it, and `billow run`
// where its own stdout and stderr are one.
inline constexpr char output_variable[] = "BILLOW_OUTPUT";
inline constexpr char output_merged[] = "merged";
// Set by the head alone: how much output of the task is kept, in bytes. Without it, the agent's
// default.
inline constexpr char log_limit_variable[] = "BILLOW_LOG_BYTES";
inline constexpr std::uint32_t record_data_bytes_max = 64u << 10;

}  // namespace billow::wire
