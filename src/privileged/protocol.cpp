#include "privileged/protocol.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/wire/codec.h"
#include "process/passed_descriptors.h"

namespace billow::privileged {
namespace {

constexpr std::uint32_t umask_max = 0777;
constexpr std::uint32_t log_segments_most = 4096;

bool has_nul(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

// One component of a path, which is neither hidden nor leads elsewhere.
Status check_name(const std::string& name) {
  const bool good = !name.empty() && name.size() <= secret_name_bytes_max && name.front() != '.' &&
                    name.find('/') == std::string::npos && !has_nul(name);
  if (!good)
    return fail(Code::invalid, fmt::format("\"{}\" is not a name of a secret", name),
                "a name has no '/' and does not begin with '.'");
  return {};
}

Status check(const Request& request) {
  if (request.version != protocol_version)
    return fail(Code::unsupported,
                fmt::format("the agent speaks version {} of the helper's protocol, this helper "
                            "version {}",
                            request.version, protocol_version),
                "run the same version of Billow as agent and helper, and start both again");
  if (request.verb != Verb::hello && (request.task == 0 || request.task > std::uint64_t{INT64_MAX}))
    return fail(Code::invalid, fmt::format("{} is not a number of a task", request.task));
  if (request.cpu_milli < 0 || request.mem_mib < 0 || request.pids_max < 0 ||
      request.mem_mib > INT64_MAX >> 20)
    return fail(Code::invalid, "a limit is negative or larger than any machine");
  if (request.verb == Verb::secret)
    BILLOW_TRY_VOID(check_name(request.name));
  constexpr int signals_max = 64;
  if (request.verb == Verb::signal &&
      (request.pid <= 1 || request.number < 1 || request.number > signals_max))
    return fail(Code::invalid, fmt::format("signal {} to process {} cannot be meant",
                                           request.number, request.pid));
  return {};
}

Status check(const Order& order) {
  if (order.argv.empty() || order.argv.front().empty())
    return fail(Code::invalid, "the order has no command");
  if (order.umask > umask_max)
    return fail(Code::invalid, fmt::format("umask {:o} is larger than 777", order.umask));
  for (const auto* texts : {&order.argv, &order.env, &order.hide_devices, &order.shown})
    if (std::ranges::any_of(*texts, has_nul))
      return fail(Code::invalid, "a text of the order has a NUL byte");
  for (const std::string& path : order.shown)
    if (!path.starts_with('/'))
      return fail(Code::invalid, fmt::format("\"{}\" is not an absolute path", path));
  if (has_nul(order.cwd) || !order.cwd.starts_with('/'))
    return fail(Code::invalid, fmt::format("\"{}\" is not an absolute path", order.cwd));
  if (order.log_segments_max == 0 || order.log_segments_max > log_segments_most ||
      order.log_segment_bytes == 0 ||
      order.log_segment_bytes > static_cast<std::uint64_t>(INT64_MAX))
    return fail(Code::invalid, "the order's limits of the log are none");
  for (const Duration one : {order.time_limit, order.stop_grace, order.leftover_grace})
    if (one.ns < 0)
      return fail(Code::invalid, "a duration of the order is negative");
  if (order.paid_until.ns < 0)
    return fail(Code::invalid, "the order's end is negative");
  return {};
}

}  // namespace

Result<Request> read_request(std::string_view text) {
  if (text.size() > message_bytes_max)
    return fail(Code::too_large, "the request is too large");
  Request request = BILLOW_TRY(wire::from_json_text<Request>(text, true));
  BILLOW_TRY_VOID(check(request));
  return request;
}

Result<Order> read_order(std::string_view text) {
  if (text.size() > content_bytes_max)
    return fail(Code::too_large, "the order is too large");
  Order order = BILLOW_TRY(wire::from_json_text<Order>(text, true));
  BILLOW_TRY_VOID(check(order));
  return order;
}

Reply refusal(const Error& error) {
  Reply reply;
  reply.code = code_name(error.code);
  reply.error = error.message;
  reply.hint = error.hint;
  return reply;
}

Status status_of(const Reply& reply) {
  if (reply.code.empty())
    return {};
  for (const Code code : {Code::invalid, Code::unauthorized, Code::forbidden, Code::not_found,
                          Code::conflict, Code::infeasible, Code::exhausted, Code::unavailable,
                          Code::storage_full, Code::unsupported, Code::too_large, Code::timed_out})
    if (reply.code == code_name(code))
      return fail(code, reply.error, reply.hint);
  return fail(Code::internal, reply.error, reply.hint);
}

Result<Message> receive(int socket) {
  Message message;
  message.text.resize(message_bytes_max);
  iovec part{message.text.data(), message.text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * descriptors_max)] = {};
  msghdr head{};
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  head.msg_control = control;
  head.msg_controllen = sizeof control;
  ssize_t n = 0;
  do
    n = ::recvmsg(socket, &head, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0)
    return fail_errno("receive", errno);
  message.descriptors = passed_descriptors(head);
  if ((head.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return fail(Code::too_large, "the message is larger than it may be");
  if (n == 0)
    return fail(Code::unavailable, "the connection was closed");
  message.text.resize(static_cast<std::size_t>(n));
  return message;
}

Status send(int socket, std::string_view text, const std::vector<int>& descriptors) {
  const iovec part{const_cast<char*>(text.data()), text.size()};
  if (send_with_descriptors(socket, {&part, 1}, descriptors) != static_cast<ssize_t>(text.size()))
    return fail_errno("send", errno);
  return {};
}

}  // namespace billow::privileged
