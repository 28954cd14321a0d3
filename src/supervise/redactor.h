// Replaces values of secrets in the job's output by "***", wherever the output is cut into pieces.
//
// One KMP matcher per value, so the time is linear in the output for each value, whatever the job
// prints. Held back are only bytes that may be the beginning of a value: the longest suffix of the
// output that is a prefix of one. Values that overlap or follow each other become one "***". The
// result is never longer than the output, because every value has at least `redacted_bytes_min`.
//
// This protects against accidents. A job that wants to print its secrets in another form can.
#pragma once

#include <cstddef>
#include <cstdint>

namespace billow::supervise {

inline constexpr std::size_t redacted_bytes_min = 6;
inline constexpr std::size_t redacted_values_max = 1024;
inline constexpr std::size_t redacted_bytes_max = 8u << 20;  // of all values together

class Redactor {
 public:
  // Called with bytes that may be shown.
  using Sink = void (*)(void* to, const char* data, std::uint32_t bytes);

  // `values`: each with its length before it (u32). What is too short is ignored. The values are
  // copied. Null, or what is wrong.
  const char* take(const char* values, std::size_t bytes);
  // The same from sealed memory that the agent passes; a descriptor of any other kind is ignored.
  const char* take_from(int fd);
  bool active() const { return count_ > 0; }

  void feed(int stream, const char* data, std::size_t bytes, Sink sink, void* to);
  // Shows what is held back: the stream has ended, or paused for longer than a reader should wait.
  void release(int stream, Sink sink, void* to);
  bool holds(int stream) const { return streams_[stream].shown < streams_[stream].seen; }
  // Overwrites the values. Nothing is redacted from then on.
  void forget();

 private:
  struct Value {
    const char* text;
    std::uint32_t* fallback;  // KMP's table: where to go on after a mismatch
    std::uint32_t bytes;
  };
  // Offsets count the bytes of the stream from its begin.
  struct Place {
    std::uint32_t matched;  // bytes of the value that the stream ends with
    std::uint64_t covered;  // up to here, matches of this value are marked
  };
  struct Stream {
    Place* places;  // one per value
    char* held;     // the last bytes of the stream, a ring
    char* hidden;   // beside each: whether it belongs to a value
    std::uint64_t seen;
    std::uint64_t shown;
    bool in_value;  // the last byte shown was hidden
    bool between;   // no value has begun: all places are at 0
  };
  void step(Stream& stream, char byte);
  void show(Stream& stream, std::uint64_t until, Sink sink, void* to);
  void put(char byte, Sink sink, void* to);
  void flush(Sink sink, void* to);

  static constexpr int streams_count = 2;
  Value* values_ = nullptr;
  std::uint32_t count_ = 0;
  std::uint64_t ring_bytes_ = 0;  // a power of two, longer than every value
  Stream streams_[streams_count] = {};
  bool begins_[256] = {};  // whether a value begins with this byte
  char* memory_ = nullptr;
  std::size_t memory_bytes_ = 0;
  char out_[16 << 10];
  std::uint32_t out_bytes_ = 0;
};

}  // namespace billow::supervise
