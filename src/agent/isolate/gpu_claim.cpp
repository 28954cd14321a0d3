#include "agent/isolate/gpu_claim.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/log.h"

namespace billow::agent {
namespace {

constexpr int claims_waiting_max = 64;
constexpr int claim_tries = 3;

// Abstract: the first byte is zero, and no file exists that could stay behind.
socklen_t claim_address(const std::string& uuid, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "billow-gpu-" + uuid;
  const std::size_t length = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

Fd claim_socket() {
  return Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The socket that holds the GPU; empty: somebody else has it.
Fd claim_one(const std::string& uuid) {
  Fd fd = claim_socket();
  sockaddr_un address;
  const socklen_t length = claim_address(uuid, address);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(fd.get(), claims_waiting_max) != 0)
    return {};
  return fd;
}

}  // namespace

std::optional<GpuHolder> gpu_holder(const std::string& uuid) {
  const Fd fd = claim_socket();
  sockaddr_un address;
  const socklen_t length = claim_address(uuid, address);
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
    return std::nullopt;
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
    return std::nullopt;
  const passwd* account = ::getpwuid(who.uid);
  return GpuHolder{who.uid, who.pid, account ? account->pw_name : fmt::format("user {}", who.uid)};
}

Result<GpuClaims> GpuClaims::take(net::Loop& loop, const std::vector<std::string>& uuids) {
  GpuClaims out;
  for (const std::string& uuid : uuids) {
    Fd fd;
    std::optional<GpuHolder> holder;
    // The holder may end between the two looks.
    for (int i = 0; i < claim_tries && !fd; ++i) {
      fd = claim_one(uuid);
      holder = fd ? std::nullopt : gpu_holder(uuid);
      if (holder)
        break;
    }
    if (holder && holder->uid != ::geteuid())
      return fail(Code::conflict,
                  fmt::format("{} (process {}) already gives out GPU {} of this machine",
                              holder->name, holder->pid, uuid),
                  "use that head instead: ask its owner for a token, then `billow login`");
    if (!fd) {
      log_warn("GPU {} is given out by another agent too{}", uuid,
               holder ? fmt::format(" (process {})", holder->pid) : "");
      continue;
    }
    out.watches_.push_back(loop.on_readable(fd.get(), [raw = fd.get()] {
      for (int i = 0; i < claims_waiting_max; ++i)
        if (!Fd(::accept4(raw, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)))
          return;
    }));
    out.sockets_.push_back(std::move(fd));
  }
  return out;
}

}  // namespace billow::agent
