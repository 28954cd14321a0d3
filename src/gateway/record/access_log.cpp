#include "gateway/record/access_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>

#include <fmt/format.h>

#include "base/log.h"
#include "gateway/pure/digits.h"

namespace billow::gateway {
namespace {
constexpr std::uint64_t file_bytes_max = 64 << 20;
constexpr std::size_t buffer_bytes_max = 256 << 10;
constexpr unsigned old_files = 4;
constexpr std::size_t path_bytes_max = 1 << 10;
// Of lines about requests that anybody can make and that reached no replica, in a second: a full
// log lasts for more than an hour of them.
constexpr std::size_t turned_away_bytes_max = 64 << 10;

}  // namespace

void keep_old_files(const std::string& path, unsigned files) {
  for (unsigned i = files; i > 1; --i)
    (void)std::rename(fmt::format("{}.{}", path, i - 1).c_str(),
                      fmt::format("{}.{}", path, i).c_str());
  (void)std::rename(path.c_str(), (path + ".1").c_str());
}

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

AccessLog::AccessLog(net::Loop& loop, DiskWriter& disk, std::string path)
    : disk_(disk), path_(std::move(path)) {
  timer_ = loop.every(milliseconds(250), [this] {
    const std::lock_guard lock(mutex_);
    flush();
  });
}

AccessLog::~AccessLog() {
  flush();
  disk_.wait();
}

void AccessLog::add(const Front& front, std::string_view endpoint, End end, SteadyTime now) {
  const std::lock_guard lock(mutex_);
  if (buffer_.size() > buffer_bytes_max)
    flush();
  const Ticket& t = front.ticket;
  const auto us = [&](SteadyTime to, SteadyTime from) {
    return to.ns == 0 ? -1 : (to - from).ns / 1000;
  };
  const auto word = [&](std::string_view text) {
    buffer_ += text;
    buffer_ += ' ';
  };
  const auto figure = [&](std::string_view name, auto number) {
    buffer_ += name;
    append_number(buffer_, number);
  };
  const std::string& time = time_text(system_clock().wall());
  const bool anybodys = t.key.empty() && !t.upstream;
  if (anybodys && turned_away_bytes_ > turned_away_bytes_max) {
    ++left_out_;
    return;
  }
  const std::size_t before = buffer_.size();
  word(time);
  word(front.request_id());
  word(front.peer());
  word(endpoint);
  // The path may contain anything except spaces and control characters, which the parser has
  // refused.
  buffer_ += '"';
  word(front.head().method);
  const std::string_view path = front.path();
  buffer_ += path.substr(0, path_bytes_max);
  if (path.size() > path_bytes_max)
    figure("...+", path.size() - path_bytes_max);
  figure("\" ", t.status);
  buffer_ += ' ';
  buffer_ += end_name(end);
  figure(" in=", t.bytes_in);
  figure(" out=", t.bytes_out);
  figure(" held_us=", us(t.given, t.arrived));
  figure(" first_us=", us(t.first_byte, t.arrived));
  figure(" total_us=", us(now, t.arrived));
  buffer_ += " replica=";
  buffer_ += t.upstream ? std::string_view(t.upstream->name) : "-";
  figure(" tries=", t.tries);
  buffer_ += " key=";
  buffer_ += t.key.empty() ? "-" : std::string_view(t.key);
  if (t.counts_tokens) {
    figure(t.usage.knows_in ? " tokens_in=" : " tokens_in=~", t.usage.in);
    figure(t.usage.knows_out ? " tokens_out=" : " tokens_out=~", t.usage.out);
  }
  buffer_ += '\n';
  if (anybodys)
    turned_away_bytes_ += buffer_.size() - before;
}

const std::string& AccessLog::time_text(WallTime now) {
  const std::int64_t second = now.ns / 1'000'000'000;
  if (second != second_) {
    if (left_out_ > 0) {
      buffer_ += second_text_ + " - - - ";
      append_number(buffer_, std::exchange(left_out_, 0));
      buffer_ += " more requests were turned away in this second\n";
    }
    turned_away_bytes_ = 0;
    second_ = second;
    second_text_ = format_utc(now);
  }
  return second_text_;
}

void AccessLog::flush() {
  if (buffer_.empty())
    return;
  // A disk that hangs must not stop requests: lines are lost instead, and that is said.
  const bool taken = disk_.run([this, lines = std::exchange(buffer_, {})] { write(lines); });
  if (!taken && !losing_)
    log_warn("{}: the disk is too slow; lines are lost", path_);
  losing_ = !taken;
}

void AccessLog::write(std::string_view lines) {
  if (!fd_) {
    fd_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    struct stat info {};
    if (fd_ && ::fstat(fd_.get(), &info) == 0)
      bytes_ = static_cast<std::uint64_t>(info.st_size);
  }
  if (fd_) {
    (void)write_all(fd_.get(), lines);
    bytes_ += lines.size();
  }
  if (bytes_ < file_bytes_max)
    return;
  keep_old_files(path_, old_files);
  fd_.reset();
  bytes_ = 0;
}

}  // namespace billow::gateway
