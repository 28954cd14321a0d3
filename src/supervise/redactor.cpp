#include "supervise/redactor.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace billow::supervise {
namespace {

constexpr char shown_instead[] = "***";

// Cuts memory into parts, each aligned for any of them.
struct Cutter {
  char* at;
  template <class T>
  T* cut(std::size_t count) {
    auto* part = reinterpret_cast<T*>(at);
    at += (count * sizeof(T) + 15) / 16 * 16;
    return part;
  }
};

// The length of the next value, or 0 if the text ends. False: it is malformed.
bool next_value(const char* values, std::size_t bytes, std::size_t& at, std::uint32_t& length) {
  length = 0;
  if (at == bytes)
    return true;
  if (bytes - at < sizeof(length))
    return false;
  memcpy(&length, values + at, sizeof(length));
  at += sizeof(length);
  return length > 0 && length <= bytes - at;
}

void build_fallback(const char* text, std::uint32_t bytes, std::uint32_t* fallback) {
  fallback[0] = 0;
  for (std::uint32_t i = 1, k = 0; i < bytes; ++i) {
    while (k > 0 && text[i] != text[k])
      k = fallback[k - 1];
    if (text[i] == text[k])
      ++k;
    fallback[i] = k;
  }
}

}  // namespace

const char* Redactor::take(const char* values, std::size_t bytes) {
  if (bytes > redacted_bytes_max)
    return "the values to redact are too large";
  std::size_t count = 0, longest = 0;
  std::uint32_t length = 0;
  for (std::size_t at = 0; at < bytes; at += length) {
    if (!next_value(values, bytes, at, length))
      return "the values to redact are malformed";
    if (length < redacted_bytes_min)
      continue;
    ++count;
    longest = length > longest ? length : longest;
  }
  if (count > redacted_values_max)
    return "there are too many values to redact";
  if (count == 0)
    return nullptr;
  ring_bytes_ = 64;
  while (ring_bytes_ <= longest)
    ring_bytes_ *= 2;
  const std::size_t slack = 16 * (4 + 2 * count + 3 * streams_count);
  memory_bytes_ = bytes * (1 + sizeof(std::uint32_t)) + count * sizeof(Value) +
                  streams_count * (count * sizeof(Place) + 2 * ring_bytes_) + slack;
  void* memory =
      mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return "no memory for the values to redact";
  madvise(memory, memory_bytes_, MADV_DONTDUMP);
  memory_ = static_cast<char*>(memory);
  Cutter cutter{memory_};
  values_ = cutter.cut<Value>(count);
  for (Stream& stream : streams_) {
    stream.places = cutter.cut<Place>(count);
    stream.held = cutter.cut<char>(ring_bytes_);
    stream.hidden = cutter.cut<char>(ring_bytes_);
    stream.between = true;
  }
  for (std::size_t at = 0; at < bytes; at += length) {
    next_value(values, bytes, at, length);
    if (length < redacted_bytes_min)
      continue;
    char* text = cutter.cut<char>(length);
    memcpy(text, values + at, length);
    auto* fallback = cutter.cut<std::uint32_t>(length);
    build_fallback(text, length, fallback);
    begins_[static_cast<unsigned char>(text[0])] = true;
    values_[count_++] = {text, fallback, length};
  }
  return nullptr;
}

const char* Redactor::take_from(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  struct stat st {};
  if (seals < 0 || (seals & F_SEAL_WRITE) == 0 || fstat(fd, &st) != 0 || st.st_size == 0)
    return nullptr;
  const auto bytes = static_cast<std::size_t>(st.st_size);
  void* values = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (values == MAP_FAILED)
    return "the values to redact cannot be read";
  const char* wrong = take(static_cast<const char*>(values), bytes);
  munmap(values, bytes);
  return wrong;
}

void Redactor::forget() {
  if (memory_ != nullptr)
    explicit_bzero(memory_, memory_bytes_);
  count_ = 0;
  for (Stream& stream : streams_)
    stream.shown = stream.seen;
}

void Redactor::flush(Sink sink, void* to) {
  if (out_bytes_ > 0)
    sink(to, out_, out_bytes_);
  out_bytes_ = 0;
}

void Redactor::put(char byte, Sink sink, void* to) {
  if (out_bytes_ == sizeof(out_))
    flush(sink, to);
  out_[out_bytes_++] = byte;
}

// The next byte of a stream, against every value.
void Redactor::step(Stream& stream, char byte) {
  const std::uint64_t ring_mask = ring_bytes_ - 1;
  stream.held[stream.seen & ring_mask] = byte;
  stream.hidden[stream.seen & ring_mask] = 0;
  ++stream.seen;
  stream.between = true;
  for (std::uint32_t i = 0; i < count_; ++i) {
    const Value& value = values_[i];
    Place& place = stream.places[i];
    std::uint32_t k = place.matched;
    while (k > 0 && value.text[k] != byte)
      k = value.fallback[k - 1];
    if (value.text[k] == byte)
      ++k;
    if (k == value.bytes) {
      // What an earlier match of the same value has marked is not marked again: a text like "aaaa"
      // would else cost its length with every byte.
      std::uint64_t from = stream.seen - value.bytes;
      from = from < place.covered ? place.covered : from;
      from = from < stream.shown ? stream.shown : from;
      for (std::uint64_t at = from; at < stream.seen; ++at)
        stream.hidden[at & ring_mask] = 1;
      place.covered = stream.seen;
      k = value.fallback[k - 1];
    }
    place.matched = k;
    stream.between = stream.between && k == 0;
  }
}

void Redactor::show(Stream& stream, std::uint64_t until, Sink sink, void* to) {
  const std::uint64_t ring_mask = ring_bytes_ - 1;
  for (; stream.shown < until; ++stream.shown) {
    const std::uint64_t at = stream.shown & ring_mask;
    if (stream.hidden[at] == 0)
      put(stream.held[at], sink, to);
    else if (!stream.in_value)
      for (const char* star = shown_instead; *star != 0; ++star)
        put(*star, sink, to);
    stream.in_value = stream.hidden[at] != 0;
  }
}

void Redactor::feed(int number, const char* data, std::size_t bytes, Sink sink, void* to) {
  Stream& stream = streams_[number];
  for (std::size_t i = 0; i < bytes; ++i) {
    // Most bytes begin no value and follow none.
    if (stream.between && stream.shown == stream.seen &&
        !begins_[static_cast<unsigned char>(data[i])]) {
      put(data[i], sink, to);
      stream.in_value = false;
      ++stream.seen;
      ++stream.shown;
      continue;
    }
    step(stream, data[i]);
    std::uint32_t longest = 0;
    for (std::uint32_t k = 0; k < count_ && !stream.between; ++k)
      longest = stream.places[k].matched > longest ? stream.places[k].matched : longest;
    show(stream, stream.seen - longest, sink, to);
  }
  flush(sink, to);
}

// The places stay: if the rest of a value comes later, at least that is hidden.
void Redactor::release(int number, Sink sink, void* to) {
  Stream& stream = streams_[number];
  show(stream, stream.seen, sink, to);
  flush(sink, to);
}

}  // namespace billow::supervise
