#include "gpumem/shim_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "process/passed_descriptors.h"

namespace billow::gpumem {

namespace {

// Requests that may wait for an answer. Beyond that the oldest one is given up.
constexpr std::size_t outstanding_max = 256;
constexpr int page_timeout_ms = 10000;

bool brings_descriptors(std::uint16_t type) {
  return type == BILLOW_EXPORT || type == BILLOW_CREATE || type == BILLOW_SHARE;
}

template <class M>
void drop_oldest(M& map) {
  while (map.size() > outstanding_max)
    map.erase(map.begin());
}

}  // namespace

Result<Answer> receive_packet(int socket) {
  unsigned char buffer[BILLOW_MESSAGE_BYTES_MAX];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * BILLOW_BATCH_MAX)];
  iovec part{buffer, sizeof buffer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n;
  do
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0)
    return fail_errno("the connection to a job's process broke", errno);
  Answer out;
  out.descriptors = passed_descriptors(message);
  if (n == 0)
    return fail(Code::unavailable, "the job's process ended");
  if (static_cast<std::size_t>(n) < sizeof out.head)
    return fail(Code::invalid, "a job's process sent a packet that is too short");
  std::memcpy(&out.head, buffer, sizeof out.head);
  out.items.assign(buffer + sizeof out.head, buffer + n);
  return out;
}

Status send_packet(int socket,
                   const billow_message& head,
                   std::span<const unsigned char> items,
                   std::span<const int> descriptors) {
  const iovec parts[2] = {{const_cast<billow_message*>(&head), sizeof head},
                          {const_cast<unsigned char*>(items.data()), items.size()}};
  const ssize_t n = send_with_descriptors(socket, parts, descriptors, MSG_DONTWAIT);
  // Hundreds of messages wait for a process whose shim reads each at once.
  if (n < 0 && errno == EAGAIN)
    return fail(Code::unavailable, "the job's process does not read its messages");
  if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
    return fail(Code::unavailable, "the job's process ended");
  if (n < 0)
    return fail_errno("a message to a job's process could not be sent", errno);
  return {};
}

Result<std::uint32_t> ShimLink::send(std::uint16_t type,
                                     std::uint64_t arg0,
                                     std::span<const std::uint64_t> ids,
                                     std::span<const Fd> descriptors) {
  std::vector<int> numbers;
  for (const Fd& fd : descriptors)
    numbers.push_back(fd.get());
  billow_message head{};
  head.version = BILLOW_ABI_VERSION;
  head.type = type;
  head.count = static_cast<std::uint16_t>(ids.size());
  head.arg0 = arg0;
  const std::lock_guard guard(lock_);
  if (closed_)
    return fail(Code::unavailable, "the job's process ended");
  head.sequence = next_++;
  const Status sent =
      send_packet(socket_.get(), head,
                  {reinterpret_cast<const unsigned char*>(ids.data()), ids.size_bytes()}, numbers);
  if (sent) {
    asked_[head.sequence] = type;
    drop_oldest(asked_);
    return head.sequence;
  }
  // The reader may not have seen the end yet. The next caller must not take it for an error.
  if (sent.error().code == Code::unavailable) {
    closed_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
    arrived_.notify_all();
  }
  return pass(sent.error());
}

Result<Answer> ShimLink::wait(std::uint32_t sequence, int timeout_ms) {
  std::unique_lock guard(lock_);
  arrived_.wait_for(guard, std::chrono::milliseconds(timeout_ms),
                    [&] { return closed_ || answers_.contains(sequence); });
  const auto found = answers_.find(sequence);
  if (found == answers_.end())
    return closed_ ? fail(Code::unavailable, "the job's process ended")
                   : fail(Code::timed_out, "the job's process did not answer in time");
  Answer out = std::move(found->second);
  answers_.erase(found);
  return out;
}

bool ShimLink::poll(std::uint32_t sequence, Answer& out) {
  const std::lock_guard guard(lock_);
  const auto found = answers_.find(sequence);
  if (found == answers_.end())
    return false;
  out = std::move(found->second);
  answers_.erase(found);
  return true;
}

Result<Answer> ShimLink::ask(std::uint16_t type,
                             std::uint64_t arg0,
                             std::span<const std::uint64_t> ids,
                             int timeout_ms) {
  return wait(BILLOW_TRY(send(type, arg0, ids)), timeout_ms);
}

Result<Answer> ShimLink::list_page(std::uint16_t type, std::uint64_t next) {
  Answer answer = BILLOW_TRY(ask(type, next, {}, page_timeout_ms));
  if (answer.head.status)
    return fail_errno("a process could not list its memory", answer.head.status);
  const std::uint64_t after = answer.head.arg0;
  if (after != UINT64_MAX && (after <= next || after > list_items_max))
    return fail(Code::invalid, "a process listed its memory without an end");
  return answer;
}

void ShimLink::deliver(Answer answer) {
  {
    const std::lock_guard guard(lock_);
    const auto asked = asked_.find(answer.head.sequence);
    if (asked == asked_.end() || asked->second != answer.head.type)
      return;
    asked_.erase(asked);
    ending_ = ending_ || answer.head.status == ESHUTDOWN;
    if (!brings_descriptors(answer.head.type))
      answer.descriptors.clear();
    answers_[answer.head.sequence] = std::move(answer);
    drop_oldest(answers_);
  }
  arrived_.notify_all();
}

void ShimLink::close() {
  {
    const std::lock_guard guard(lock_);
    closed_ = true;
    ::shutdown(socket_.get(), SHUT_RDWR);
  }
  arrived_.notify_all();
}

}  // namespace billow::gpumem
