#include "agent/task/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "process/sealed_memory_linux.h"
#include "process/spawn.h"
#include "supervise/secrets.h"

namespace billow::agent {
namespace {

using namespace supervise;

constexpr std::size_t link_out_bytes_max = 1 << 20;
constexpr std::size_t read_bytes = 128 << 10;

template <class T>
const T* as(std::string_view payload, T* copy) {
  if (payload.size() < sizeof(T))
    return nullptr;
  std::memcpy(copy, payload.data(), sizeof(T));
  return copy;
}

}  // namespace

void SupervisorLink::on_readable(LinkEvents& events) {
  if (!fd_)
    return;
  const std::size_t before = in_.size();
  in_.resize(before + read_bytes);
  const ssize_t n = ::recv(fd_.get(), in_.data() + before, read_bytes, MSG_DONTWAIT);
  const int error = errno;
  in_.resize(before + (n > 0 ? static_cast<std::size_t>(n) : 0));
  if (n < 0 && (error == EAGAIN || error == EINTR))
    return;
  std::size_t at = 0;
  bool good = n > 0;
  while (good && in_.size() - at >= sizeof(FrameHead)) {
    FrameHead head;
    std::memcpy(&head, in_.data() + at, sizeof(head));
    if (head.bytes > frame_payload_bytes_max)
      good = false;
    else if (in_.size() - at < sizeof(head) + head.bytes)
      break;
    else
      good = dispatch(head, std::string_view(in_).substr(at + sizeof(head), head.bytes), events);
    at += sizeof(head) + head.bytes;
  }
  if (good) {
    in_.erase(0, at);
    return;
  }
  fd_.reset();
  in_.clear();
  out_.clear();
  events.on_closed();
}

// False for a frame too short for its type.
bool SupervisorLink::dispatch(const FrameHead& head, std::string_view payload, LinkEvents& events) {
  switch (static_cast<FrameType>(head.type)) {
    case FrameType::status: {
      StatusFrame frame;
      if (!as(payload, &frame))
        return false;
      events.on_status(frame);
      return true;
    }
    case FrameType::output: {
      OutputHead frame;
      if (!as(payload, &frame))
        return false;
      events.on_output(frame, payload.substr(sizeof(frame)));
      return true;
    }
    case FrameType::log_advanced: {
      LogAdvancedFrame frame;
      if (!as(payload, &frame))
        return false;
      events.on_log_advanced(frame.log_end);
      return true;
    }
    case FrameType::stdin_ack: {
      StdinAckFrame frame;
      if (!as(payload, &frame))
        return false;
      events.on_stdin_ack(frame);
      return true;
    }
    case FrameType::exited: {
      ExitRecord frame;
      if (!as(payload, &frame))
        return false;
      frame.detail[sizeof(frame.detail) - 1] = 0;
      events.on_exited(frame);
      return true;
    }
    case FrameType::replay:
      events.on_replay(payload);
      return true;
    case FrameType::stdin_data:
    case FrameType::stdin_eof:
    case FrameType::resize:
    case FrameType::signal:
    case FrameType::stop:
    case FrameType::set_deadline:
    case FrameType::freeze:
    case FrameType::thaw:
    case FrameType::status_request:
    case FrameType::subscribe:
      return true;
  }
  return true;  // a type of a newer supervisor
}

void SupervisorLink::on_writable() {
  if (!fd_ || out_.empty())
    return;
  const ssize_t n = ::send(fd_.get(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n > 0)
    out_.erase(0, static_cast<std::size_t>(n));
  else if (n < 0 && errno != EAGAIN && errno != EINTR)
    out_.clear();  // the reading side will see the end
}

void SupervisorLink::send(FrameType type,
                          const void* head,
                          std::size_t head_bytes,
                          std::string_view data) {
  if (!fd_)
    return;
  const FrameHead frame{static_cast<std::uint32_t>(head_bytes + data.size()),
                        static_cast<std::uint16_t>(type), 0};
  if (out_.size() + sizeof(frame) + frame.bytes > link_out_bytes_max) {
    ::shutdown(fd_.get(), SHUT_RDWR);
    out_.clear();
    return;
  }
  out_.append(reinterpret_cast<const char*>(&frame), sizeof(frame));
  if (head_bytes > 0)
    out_.append(static_cast<const char*>(head), head_bytes);
  out_.append(data);
  on_writable();
}

void SupervisorLink::send_stdin(std::uint64_t offset, std::string_view data) {
  while (!data.empty()) {
    const std::string_view part = data.substr(0, record_data_bytes_max);
    const StdinHead head{offset};
    send(FrameType::stdin_data, &head, sizeof(head), part);
    if (offset != stdin_append)
      offset += part.size();
    data.remove_prefix(part.size());
  }
}
void SupervisorLink::send_stdin_eof(std::uint64_t offset) {
  const StdinHead head{offset};
  send(FrameType::stdin_eof, &head, sizeof(head));
}
void SupervisorLink::resize(TerminalSize size) {
  const ResizeFrame frame{size.rows, size.columns};
  send(FrameType::resize, &frame, sizeof(frame));
}
void SupervisorLink::signal(int number, SignalScope scope) {
  const SignalFrame frame{number, static_cast<std::uint32_t>(scope)};
  send(FrameType::signal, &frame, sizeof(frame));
}
void SupervisorLink::stop(Duration grace, std::uint32_t reason) {
  const StopFrame frame{grace.ns, reason, 0};
  send(FrameType::stop, &frame, sizeof(frame));
}
void SupervisorLink::set_deadline(DeadlineKind kind, SteadyTime when) {
  const DeadlineFrame frame{static_cast<std::uint32_t>(kind), 0, when.ns};
  send(FrameType::set_deadline, &frame, sizeof(frame));
}
void SupervisorLink::freeze(bool frozen) {
  send(frozen ? FrameType::freeze : FrameType::thaw, nullptr, 0);
}
void SupervisorLink::request_status() {
  send(FrameType::status_request, nullptr, 0);
}
void SupervisorLink::subscribe(Subscription subscription, bool replay) {
  const SubscribeFrame frame{static_cast<std::uint32_t>(subscription),
                             replay ? subscribe_replay : 0};
  send(FrameType::subscribe, &frame, sizeof(frame));
}

Result<Launcher> Launcher::create(LauncherOptions options) {
  Launcher launcher;
  launcher.path_ = std::move(options.supervise_path);
  if (launcher.path_.empty()) {
    const char* named = std::getenv("BILLOW_SUPERVISE");
    launcher.path_ = named != nullptr ? named : executable_dir() + "/billow-supervise";
  }
  if (::access(launcher.path_.c_str(), X_OK) != 0)
    return fail(Code::unavailable,
                fmt::format("{} does not exist or may not be executed", launcher.path_),
                "install billow-supervise beside billow, or name it in BILLOW_SUPERVISE");
  return launcher;
}

Result<SupervisorLink> Launcher::launch(NewTask task,
                                        std::string_view secrets,
                                        std::string_view redacted,
                                        const JobNetwork* network) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail_errno("socketpair", errno);
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  process::Spawn request;
  request.program = path_;
  request.argv = {"billow-supervise", task.path};
  request.env.emplace();
  request.group = process::Group::ours;
  request.fds = {{theirs.get(), fd_ctl}, {task.lock.get(), fd_lock}};
  Fd memory, hidden;
  if (!secrets.empty()) {
    memory = BILLOW_TRY(process::sealed_memory("secrets", secrets));
    request.fds.push_back({memory.get(), fd_secrets});
  }
  if (!redacted.empty()) {
    hidden = BILLOW_TRY(process::sealed_memory("redacted", redacted));
    request.fds.push_back({hidden.get(), fd_redacted});
  }
  if (network) {
    request.fds.push_back({network->network.get(), fd_network});
    request.fds.push_back({network->life.get(), fd_network_life});
  }
  process::Child child = BILLOW_TRY(process::spawn(request));
  children_.insert(child.release());
  return SupervisorLink(std::move(ours));
}

namespace {
constexpr int connect_retry_ms = 2;

// The path may be longer than a socket address allows, so it goes through a descriptor of its
// directory.
Result<SupervisorLink> connect_once(const std::string& task_path) {
  const Fd directory(::open(task_path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory)
    return fail_errno("open " + task_path, errno);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd)
    return fail_errno("socket", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/{}", directory.get(), file_ctl);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    return fail(Code::unavailable, fmt::format("the supervisor in {} does not answer: {}",
                                               task_path, strerrordesc_np(errno)));
  return SupervisorLink(std::move(fd));
}

}  // namespace

Result<SupervisorLink> Launcher::connect(const std::string& task_path, Duration patience) const {
  const SteadyTime give_up = system_clock().steady() + patience;
  for (;;) {
    auto link = connect_once(task_path);
    if (link || !supervisor_alive(task_path) || system_clock().steady() >= give_up)
      return link;
    ::poll(nullptr, 0, connect_retry_ms);
  }
}

// One call finds any child that ended. Only if that is not a supervisor are they asked one by one.
std::size_t Launcher::reap() {
  while (!children_.empty()) {
    siginfo_t ended{};
    if (::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0)
      return children_.size();
    if (children_.erase(ended.si_pid) == 0)
      break;
    ::waitpid(ended.si_pid, nullptr, WNOHANG);
  }
  std::erase_if(children_, [](int pid) {
    const pid_t got = ::waitpid(pid, nullptr, WNOHANG);
    return got == pid || (got < 0 && errno == ECHILD);
  });
  return children_.size();
}

}  // namespace billow::agent
