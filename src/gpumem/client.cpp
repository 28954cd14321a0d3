#include "gpumem/client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/file.h"

namespace billow::gpumem {

namespace {
std::map<std::string, std::string> pairs(std::istringstream& words) {
  std::map<std::string, std::string> out;
  for (std::string word; words >> word;)
    if (const std::size_t equals = word.find('='); equals != std::string::npos)
      out[word.substr(0, equals)] = word.substr(equals + 1);
  return out;
}
Code code_of(const std::string& name) {
  for (Code code :
       {Code::invalid, Code::unauthorized, Code::forbidden, Code::not_found, Code::conflict,
        Code::infeasible, Code::exhausted, Code::unavailable, Code::storage_full, Code::unsupported,
        Code::too_large, Code::timed_out, Code::internal})
    if (name == code_name(code))
      return code;
  return Code::internal;
}
Result<Reply> parse(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::istringstream first(line);
  std::string verdict;
  first >> verdict;
  if (verdict == "error") {
    std::string code, message;
    first >> code;
    std::getline(first, message);
    return fail(code_of(code), message.empty()
                                   ? "the GPU memory service refused the request without a reason"
                                   : message.substr(1));
  }
  if (verdict != "ok")
    return fail(Code::unavailable, "unexpected answer from the GPU memory service: " + line);
  Reply out;
  out.values = pairs(first);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string kind;
    words >> kind;
    auto values = pairs(words);
    values["kind"] = kind;
    out.lines.push_back(std::move(values));
  }
  return out;
}
}  // namespace

std::uint64_t Reply::number(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? 0 : std::strtoull(found->second.c_str(), nullptr, 10);
}
double Reply::real(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? 0 : std::strtod(found->second.c_str(), nullptr);
}

Result<Reply> call_service(const std::string& admin_socket,
                           const std::string& command,
                           int timeout_ms) {
  if (command.find('\n') != std::string::npos)
    return fail(Code::invalid, "a command for the GPU memory service must be one line");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (admin_socket.size() >= sizeof address.sun_path)
    return fail(Code::invalid, "the GPU memory service's socket path is too long: " + admin_socket);
  std::memcpy(address.sun_path, admin_socket.data(), admin_socket.size());
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return fail(
        Code::unavailable,
        "no GPU memory service answers at " + admin_socket + " (" + std::strerror(errno) + ")",
        "check that billow-gpumem runs on this node");
  const timeval patience{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const std::string line = command + "\n";
  if (send(fd.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return fail_errno("send a command to the GPU memory service", errno);
  std::string text;
  char chunk[4096];
  while (text.find("\n\n") == std::string::npos) {
    const ssize_t n = read(fd.get(), chunk, sizeof chunk);
    if (n == 0)
      return fail(Code::unavailable, "the GPU memory service closed the connection");
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      return fail(Code::timed_out, "the GPU memory service did not answer within " +
                                       std::to_string(timeout_ms) + " ms");
    if (n < 0)
      return fail_errno("read the GPU memory service's answer", errno);
    text.append(chunk, static_cast<std::size_t>(n));
    if (text.size() > 4u << 20)
      return fail(Code::too_large, "the GPU memory service's answer is longer than 4 MiB");
  }
  return parse(text.substr(0, text.find("\n\n")));
}

}  // namespace billow::gpumem
