#include "gateway/record/access_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>

#include <fmt/format.h>

#include "base/append_format.h"

namespace billow::gateway {
namespace {
constexpr std::uint64_t file_bytes_max = 64 << 20;
constexpr std::size_t buffer_bytes_max = 256 << 10;

}  // namespace

std::string_view end_name(End end) {
  switch (end) {
    case End::answered:
      return "answered";
    case End::refused:
      return "refused";
    case End::client_gone:
      return "client-gone";
    case End::replica_failed:
      return "replica-failed";
    case End::timed_out:
      return "timed-out";
  }
  return "?";
}

AccessLog::AccessLog(net::Loop& loop, std::string path) : path_(std::move(path)) {
  timer_ = loop.every(milliseconds(250), [this] { flush(); });
}

AccessLog::~AccessLog() {
  flush();
}

void AccessLog::add(const Front& front, std::string_view endpoint, End end, SteadyTime now) {
  if (buffer_.size() > buffer_bytes_max)
    flush();
  const Ticket& t = front.ticket;
  const auto us = [&](SteadyTime to, SteadyTime from) {
    return to.ns == 0 ? -1 : (to - from).ns / 1000;
  };
  // The path may contain anything except spaces and control characters, which the parser has
  // refused.
  append_format(buffer_,
                "{} {} {} {} \"{} {}\" {} {} in={} out={} held_us={} first_us={} total_us={} "
                "replica={} tries={} key={}\n",
                format_utc(system_clock().wall()), front.request_id(), front.peer(), endpoint,
                front.head().method, front.path(), t.status, end_name(end), t.bytes_in, t.bytes_out,
                us(t.given, t.arrived), us(t.first_byte, t.arrived), us(now, t.arrived),
                t.upstream ? t.upstream->name : "-", t.tries, t.key.empty() ? "-" : t.key);
}

void AccessLog::flush() {
  if (buffer_.empty())
    return;
  if (!fd_) {
    fd_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    struct stat info {};
    if (fd_ && ::fstat(fd_.get(), &info) == 0)
      bytes_ = static_cast<std::uint64_t>(info.st_size);
  }
  if (fd_) {
    (void)write_all(fd_.get(), buffer_);
    bytes_ += buffer_.size();
  }
  buffer_.clear();
  if (bytes_ < file_bytes_max)
    return;
  (void)std::rename(path_.c_str(), (path_ + ".1").c_str());
  fd_.reset();
  bytes_ = 0;
}

}  // namespace billow::gateway
