// libFuzzer over the sockets of the GPU memory service, which runs as root and serves all jobs of a
// node: packets of a job's process over a real socket, with descriptors, and lines of the admin
// socket. A process without a job's token gets no page, and keeps nothing in the service.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/check.h"
#include "gpumem/server.h"
#include "gpumem/service.h"
#include "gpumem/shim_link.h"

namespace {

using namespace billow;
using namespace billow::gpumem;

constexpr char token[] = "0123456789abcdef0123456789abcdef";

Service& service() {
  static const auto made = Service::create({});
  BILLOW_CHECK(made.has_value(), "it needs no GPU");
  return **made;
}

void admin(std::string_view lines) {
  while (!lines.empty()) {
    const auto end = std::min(lines.find('\n'), lines.size());
    const std::string answer = run_command(service(), std::string(lines.substr(0, end)));
    BILLOW_CHECK(answer.starts_with("ok") || answer.starts_with("error "), "always an answer");
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

// One packet as the bytes say: a length, descriptors, and the packet itself.
void send_one(int socket, std::string_view& bytes) {
  const std::size_t length = std::min<std::size_t>(
      bytes.size() - 2, static_cast<unsigned char>(bytes[0]) * 8u + (bytes[1] & 7));
  std::string packet(bytes.substr(2, length));
  const int descriptors = (static_cast<unsigned char>(bytes[1]) >> 3) % 4;
  bytes.remove_prefix(2 + length);
  // A packet of the right version with the right token goes further than those of chance.
  if (packet.size() >= sizeof(billow_message) && packet[0] == '!') {
    billow_message head{};
    std::memcpy(&head, packet.data(), sizeof head);
    head.version = BILLOW_ABI_VERSION;
    std::memcpy(packet.data(), &head, sizeof head);
    if (packet.size() >= sizeof head + sizeof token)
      std::memcpy(packet.data() + sizeof head, token, sizeof token);
  }
  int numbers[4];
  std::fill(numbers, numbers + 4, socket);
  billow_message none{};
  std::memcpy(&none, packet.data(), std::min(packet.size(), sizeof none));
  const std::string_view items =
      packet.size() > sizeof none ? std::string_view(packet).substr(sizeof none) : "";
  (void)send_packet(socket, none,
                    {reinterpret_cast<const unsigned char*>(items.data()), items.size()},
                    {numbers, static_cast<std::size_t>(descriptors)});
}

void process(std::string_view bytes) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return;
  const Fd mine(pair[1]);
  Fd theirs(pair[0]);
  std::shared_ptr<ShimLink> link;
  while (bytes.size() > 2) {
    send_one(mine.get(), bytes);
    auto packet = receive_packet(link ? link->socket() : theirs.get());
    if (!packet)
      break;
    if (link) {
      const std::uint32_t sequence = packet->head.sequence;
      link->deliver(std::move(*packet));
      Answer kept;
      BILLOW_CHECK(!link->poll(sequence, kept), "what was not asked is not kept");
    } else if (packet->head.type == BILLOW_FETCH) {
      if (!service().fetch(theirs.get(), *packet))
        break;
    } else if (auto welcome = service().welcome(std::move(theirs), 1, *packet)) {
      link = *welcome;
    } else {
      break;
    }
  }
  if (link)
    service().ended(link);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  static const bool added = [] {
    return run_command(service(), std::string("add name=known token=") + token + " device=-:0:0:0")
        .starts_with("ok");
  }();
  BILLOW_CHECK(added, "a job to belong to");
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] & 1)
    process(bytes);
  else
    admin(bytes);
  return 0;
}
