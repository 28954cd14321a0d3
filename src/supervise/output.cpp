// The job's output on its way to the log and to followers.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "supervise/supervisor.h"
#include "supervise/sys.h"

namespace billow::supervise {
namespace {

char output_buffer[record_data_bytes_max];
char replay_ring[replay_bytes_max];

// How long the possible beginning of a secret is held back while nothing follows. A prompt must
// appear; a program that writes a line in pieces does so faster.
constexpr std::int64_t held_ns_max = 250'000'000;

}  // namespace

bool Supervisor::read_output(int* fd, Stream stream, int reads_max) {
  for (int i = 0; i < reads_max; ++i) {
    const ssize_t n = read(*fd, output_buffer, sizeof(output_buffer));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EAGAIN)
      return true;
    if (n <= 0) {
      // A terminal returns EIO when its other side is closed.
      if (child_.in == *fd)
        child_.in = -1;
      close(*fd);
      *fd = -1;
      return false;
    }
    const auto bytes = static_cast<std::uint32_t>(n);
    read_bytes_ += bytes;
    if (redactor_.active())
      redact(stream, bytes);
    else
      put_output(stream, output_buffer, bytes);
    if (bytes < sizeof(output_buffer))
      return true;  // probably empty now; poll will tell
  }
  return true;
}

namespace {
int number_of(Stream stream) {
  return stream == Stream::err ? 1 : 0;
}
}  // namespace

void Supervisor::redact(Stream stream, std::uint32_t bytes) {
  redactor_.feed(number_of(stream), output_buffer, bytes, stream == Stream::err ? put_err : put_out,
                 this);
  show_at_ns_ = redactor_.holds(0) || redactor_.holds(1) ? boot_ns() + held_ns_max : 0;
}

void Supervisor::show_held() {
  show_at_ns_ = 0;
  if (!redactor_.active())
    return;
  redactor_.release(number_of(Stream::out), put_out, this);
  redactor_.release(number_of(Stream::err), put_err, this);
}

void Supervisor::put_out(void* self, const char* data, std::uint32_t bytes) {
  static_cast<Supervisor*>(self)->put_output(Stream::out, data, bytes);
}

void Supervisor::put_err(void* self, const char* data, std::uint32_t bytes) {
  static_cast<Supervisor*>(self)->put_output(Stream::err, data, bytes);
}

void Supervisor::put_output(Stream stream, const char* data, std::uint32_t bytes) {
  while (bytes > 0) {
    const std::uint32_t part = log_.fitting(bytes);
    put_record(stream, data, part);
    data += part;
    bytes -= part;
  }
}

void Supervisor::put_record(Stream stream, const char* data, std::uint32_t bytes) {
  const std::int64_t wall = wall_ns();
  const bool logged = log_.append(stream, 0, data, bytes, wall);
  if (spec_.pty)
    remember(data, bytes);
  const std::uint64_t offset = logged ? log_.end() - sizeof(RecordHead) - bytes : log_.end();
  const auto flags = static_cast<std::uint8_t>(logged ? 0 : record_unlogged);
  ctl_.push_output({offset, {bytes, static_cast<std::uint8_t>(stream), flags, 0, wall}}, data,
                   bytes, log_.end());
}

void Supervisor::remember(const char* data, std::uint32_t bytes) {
  for (std::uint32_t i = 0; i < bytes;) {
    const std::uint32_t at = static_cast<std::uint32_t>(replay_total_ % sizeof(replay_ring));
    std::uint32_t part = static_cast<std::uint32_t>(sizeof(replay_ring)) - at;
    if (part > bytes - i)
      part = bytes - i;
    memcpy(replay_ring + at, data + i, part);
    i += part;
    replay_total_ += part;
  }
}

std::uint32_t Supervisor::replay(char* out, std::uint32_t capacity) {
  std::uint64_t bytes = replay_total_ < sizeof(replay_ring) ? replay_total_ : sizeof(replay_ring);
  if (bytes > capacity)
    bytes = capacity;
  for (std::uint64_t i = 0; i < bytes; ++i)
    out[i] = replay_ring[(replay_total_ - bytes + i) % sizeof(replay_ring)];
  return static_cast<std::uint32_t>(bytes);
}

}  // namespace billow::supervise
