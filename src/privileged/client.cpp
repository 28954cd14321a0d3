#include "privileged/client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "core/wire/codec.h"
#include "process/sealed_memory_linux.h"

namespace billow::privileged {
namespace {

constexpr timeval patience{.tv_sec = 15, .tv_usec = 0};

}  // namespace

Status Client::connect() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path)
    return fail(Code::invalid, fmt::format("the path {} is too long for a socket", path_));
  std::memcpy(address.sun_path, path_.data(), path_.size());
  Fd made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!made)
    return fail_errno("socket", errno);
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    (void)::setsockopt(made.get(), SOL_SOCKET, option, &patience, sizeof patience);
  if (::connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail(Code::unavailable,
                fmt::format("the root helper of this node does not answer at {}: {}", path_,
                            strerrordesc_np(errno)),
                "start it: systemctl start billow-privileged");
  socket_ = std::move(made);
  return {};
}

Result<Client::Answer> Client::receive_answer() {
  Message message = BILLOW_TRY(receive(socket_.get()));
  return Answer{BILLOW_TRY(wire::from_json_text<Reply>(message.text)),
                std::move(message.descriptors)};
}

Result<Client::Answer> Client::call(const Request& request,
                                    const std::vector<std::string_view>& contents) {
  const std::string text = wire::to_json_text(request);
  std::vector<Fd> memories;
  std::vector<int> descriptors;
  for (const std::string_view content : contents) {
    memories.push_back(BILLOW_TRY(process::sealed_memory("billow", content)));
    descriptors.push_back(memories.back().get());
  }
  const bool connected_before = static_cast<bool>(socket_);
  if (!connected_before)
    BILLOW_TRY_VOID(connect());
  Status sent = send(socket_.get(), text, descriptors);
  if (!sent && connected_before) {
    BILLOW_TRY_VOID(connect());
    sent = send(socket_.get(), text, descriptors);
  }
  auto answer = sent ? receive_answer() : Result<Answer>(std::unexpected(sent.error()));
  if (!answer) {
    socket_.reset();  // a late answer must not be taken for that of another request
    return fail(Code::unavailable,
                fmt::format("the root helper of this node did not answer \"{}\": {}",
                            enum_name(request.verb), answer.error().message),
                "see the log of billow-privileged");
  }
  BILLOW_TRY_VOID(status_of(answer->reply));
  return answer;
}

}  // namespace billow::privileged
