#include "process/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

namespace billow::process {
namespace {

constexpr int poll_ms_max = 1000;
// What a program leaves running in the background may keep the output open (an ssh that shares its
// connection, the daemon of a tool). What it prints later is not waited for.
constexpr Duration output_after_end = seconds(5);

// True: something had to be left out.
bool take(Fd& from, std::string& into, const Capture& how) {
  char buffer[65536];
  const ssize_t got = ::read(from.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN))
    return false;
  if (got <= 0) {
    from.reset();
    return false;
  }
  const auto size = static_cast<std::size_t>(got);
  if (how.keep_last) {
    into.append(buffer, size);
    const std::size_t over = into.size() - std::min(how.bytes_max, into.size());
    into.erase(0, over);
    return over > 0;
  }
  const std::size_t left = how.bytes_max - std::min(how.bytes_max, into.size());
  into.append(buffer, std::min(left, size));
  return size > left;
}

struct Input {
  Fd to;
  const std::string& text;
  std::size_t written = 0;

  void give() {
    const ssize_t sent = ::write(to.get(), text.data() + written, text.size() - written);
    if (sent > 0)
      written += static_cast<std::size_t>(sent);
    if (written == text.size() || (sent < 0 && errno != EAGAIN && errno != EINTR))
      to.reset();
  }
};

}  // namespace

Result<Output> capture(Spawn request, const Capture& how) {
  Pipe in, out = BILLOW_TRY(Pipe::create()), err;
  request.out = request.err = out.write.get();
  if (!how.together) {
    err = BILLOW_TRY(Pipe::create());
    request.err = err.write.get();
  }
  if (!how.input.empty()) {
    in = BILLOW_TRY(Pipe::create());
    request.in = in.read.get();
    ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
  }
  Child child = BILLOW_TRY(spawn(request));
  for (Fd* theirs : {&in.read, &out.write, &err.write})
    theirs->reset();
  Output output;
  Input input{std::move(in.write), how.input};
  std::optional<Ended> ended;
  SteadyTime give_up;
  while (out.read || err.read) {
    Duration left = milliseconds(poll_ms_max);
    if (!ended && (ended = child.poll()))
      give_up = system_clock().steady() + output_after_end;
    if (ended && system_clock().steady() >= give_up)
      break;
    if (request.deadline.ns != 0) {
      left = std::min(left, request.deadline - system_clock().steady());
      if (left.ns <= 0)
        break;
    }
    pollfd fds[3] = {
        {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}, {input.to.get(), POLLOUT, 0}};
    ::poll(fds, 3, static_cast<int>(left.ms() + 1));
    if (out.read && fds[0].revents)
      output.cut |= take(out.read, output.out, how);
    if (err.read && fds[1].revents)
      (void)take(err.read, output.err, how);
    if (input.to && fds[2].revents)
      input.give();
  }
  output.ended = ended ? *ended : child.wait();
  // What it wrote just before it was killed.
  if (out.read) {
    ::fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
    output.cut |= take(out.read, output.out, how);
  }
  return output;
}

}  // namespace billow::process
