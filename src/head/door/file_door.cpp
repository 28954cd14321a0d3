#include "head/door/file_door.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <utility>

#include "base/crypto.h"
#include "base/log.h"
#include "files/lane_digest.h"
#include "files/pack.h"
#include "net/blocking_io.h"
#include "process/passed_descriptors.h"

namespace billow::head {
namespace {

using files::DoorAnswer;
using files::DoorRequest;

constexpr std::size_t peers_max = 32;
constexpr std::size_t grants_max = 1024;
constexpr Duration grant_age_max = seconds(60);
constexpr Duration ticket_patience = seconds(5);
constexpr int peer_patience_s = 60;
constexpr std::size_t buffer_bytes = files::pack_bytes_max;
static_assert(buffer_bytes >= files::large_pack_begin + files::piece_bytes);

// With a deadline for all of it: a client that sends an octet now and then must not hold a thread.
bool receive_until(int fd, void* into, std::size_t size, SteadyTime deadline) {
  for (char* at = static_cast<char*>(into); size > 0;) {
    const Duration left = deadline - system_clock().steady();
    pollfd waits{fd, POLLIN, 0};
    const int ready =
        left > Duration{} ? ::poll(&waits, 1, static_cast<int>(left.ns / 1'000'000) + 1) : 0;
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready <= 0)
      return false;
    const ssize_t got = ::recv(fd, at, size, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return false;
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

bool send_answer(int fd, std::uint32_t status, std::string_view content) {
  DoorAnswer answer{status, static_cast<std::uint32_t>(content.size())};
  std::string out(reinterpret_cast<const char*>(&answer), sizeof answer);
  out += content;
  return net::send_all(fd, out);
}

// Only plain files of file systems whose reads end by themselves: one that the client itself
// serves (FUSE), or one over a network, could hold a thread for as long as it likes.
bool is_read_here(int fd) {
  constexpr long kinds[] = {0xEF53,     /* ext4 */
                            0x58465342, /* XFS */
                            0x9123683E, /* Btrfs */
                            0x01021994, /* tmpfs */
                            0x2FC12FC1 /* ZFS */};
  struct stat info {};
  struct statfs system {};
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_WRONLY || (flags & O_PATH) != 0 ||
      ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || ::fstatfs(fd, &system) != 0)
    return false;
  for (const long kind : kinds)
    if (system.f_type == kind)
      return true;
  return false;
}

bool is_valid(const DoorRequest& request) {
  const std::size_t size_max =
      request.kind == DoorRequest::piece ? files::piece_bytes : files::pack_bytes_max;
  return (request.kind == DoorRequest::piece || request.kind == DoorRequest::pack) &&
         request.size > 0 && request.size <= size_max;
}

// Such pieces are read and hashed together.
bool is_full_piece(const DoorRequest& request) {
  return request.kind == DoorRequest::piece && request.size == files::piece_bytes &&
         files::LaneDigest::available();
}

// Whether the next request is on its way: a client asks for several full pieces at once.
bool expects_another(int peer) {
  constexpr int patience_ms = 1;  // much less than a piece takes
  pollfd waits{peer, POLLIN, 0};
  return ::poll(&waits, 1, patience_ms) > 0;
}

std::string error_text(const Error& error) {
  return fmt::format("{}\n{}\n{}", static_cast<int>(error.code), error.message, error.hint);
}

}  // namespace

Result<std::unique_ptr<FileDoor>> FileDoor::open(files::Store& store) {
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener)
    return fail_errno("socket", errno);
  const std::string name = "billow-files-" + hex(random_bytes(12));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(listener.get(), 64) != 0)
    return fail_errno("the socket for files", errno);
  return std::unique_ptr<FileDoor>(new FileDoor(store, std::move(listener), name));
}

FileDoor::FileDoor(files::Store& store, Fd listener, std::string name)
    : store_(store),
      listener_(std::move(listener)),
      name_(std::move(name)),
      accepting_([this] { accept(); }) {}

FileDoor::~FileDoor() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    for (const int peer : peers_)
      ::shutdown(peer, SHUT_RDWR);
  }
  ::shutdown(listener_.get(), SHUT_RDWR);
  accepting_.join();
  threads_.join();
}

files::DoorTicket FileDoor::grant(const std::string& owner, const files::OwnerLimit& limit) {
  const SteadyTime now = system_clock().steady();
  files::DoorTicket out{name_, hex(random_bytes(files::door_ticket_bytes / 2)), ::geteuid()};
  std::lock_guard lock(mutex_);
  std::erase_if(grants_, [&](const auto& one) { return one.second.until < now; });
  if (grants_.size() < grants_max)
    grants_[out.ticket] = {owner, limit, now + grant_age_max};
  return out;
}

void FileDoor::accept() {
  while (true) {
    Fd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const bool out_of_descriptors = !peer && errno != EINTR && errno != ECONNABORTED;
    {
      std::lock_guard lock(mutex_);
      if (ending_)
        return;
    }
    if (out_of_descriptors)
      ::usleep(50'000);
    std::lock_guard lock(mutex_);
    if (!peer || ending_ || peers_.size() >= peers_max)
      continue;  // the client sends its files over HTTP
    peers_.insert(peer.get());
    threads_.start([this, fd = peer.release()] {
      serve(fd);
      std::lock_guard lock(mutex_);
      peers_.erase(fd);
      ::close(fd);
    });
  }
}

Result<FileDoor::Grant> FileDoor::redeem(int peer) {
  net::set_timeouts(peer, peer_patience_s);
  std::string ticket(files::door_ticket_bytes, '\0');
  if (!receive_until(peer, ticket.data(), ticket.size(), system_clock().steady() + ticket_patience))
    return fail(Code::unauthorized, "no ticket");
  std::lock_guard lock(mutex_);
  const auto found = grants_.find(ticket);
  if (found == grants_.end() || found->second.until < system_clock().steady())
    return fail(Code::unauthorized, "this ticket is not valid");
  Grant out = std::move(found->second);
  grants_.erase(found);
  return out;
}

// False: the client has gone.
bool FileDoor::receive_request(int peer, Asked& asked) {
  iovec part{&asked.request, sizeof asked.request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got = 0;
  do
    got = ::recvmsg(peer, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got <= 0)
    return false;
  asked.attached = passed_descriptor(message);  // came with the first octet
  const auto have = static_cast<std::size_t>(got);
  return net::receive_all(peer, reinterpret_cast<char*>(&asked.request) + have,
                          sizeof asked.request - have);
}

Result<std::vector<Sha256>> FileDoor::take_piece(const Asked& asked,
                                                 char* buffer,
                                                 const Grant& grant) {
  const DoorRequest& request = asked.request;
  BILLOW_TRY_VOID(files::read_part(asked.attached.get(), buffer + files::large_pack_begin,
                                   request.size, request.offset));
  return std::vector<Sha256>{BILLOW_TRY(store_.add_large(
      grant.owner, {buffer, files::large_pack_begin + request.size}, grant.limit))};
}

// What the client sent with a pack is in the buffer.
bool FileDoor::answer(int peer, const Asked& asked, char* buffer, const Grant& grant) {
  const bool piece = asked.request.kind == DoorRequest::piece;
  if (piece && !is_read_here(asked.attached.get()))
    return send_answer(peer, DoorAnswer::unwanted, {});
  const auto digests =
      piece ? take_piece(asked, buffer, grant)
            : store_.add_unnamed(grant.owner, {buffer, asked.request.size}, grant.limit);
  return digests ? send_answer(peer, DoorAnswer::digests, files::encode_digests(*digests))
                 : send_answer(peer, DoorAnswer::error, error_text(digests.error()));
}

// If anything is wrong with one piece, each gets its own answer.
bool FileDoor::answer_together(int peer,
                               const std::vector<Asked>& group,
                               char* buffer,
                               Session& session) {
  std::vector<files::Store::PieceToRead> pieces;
  for (const Asked& asked : group)
    if (is_read_here(asked.attached.get()))
      pieces.push_back({asked.attached.get(), asked.request.offset});
  const auto digests =
      pieces.size() == group.size()
          ? store_.add_read(session.grant.owner, pieces, session.known, session.grant.limit)
          : Result<std::vector<Sha256>>(fail(Code::invalid, "read by the client"));
  for (std::size_t i = 0; i < group.size(); ++i)
    if (digests ? !send_answer(peer, DoorAnswer::digests, files::encode_digests({(*digests)[i]}))
                : !answer(peer, group[i], buffer, session.grant))
      return false;
  return true;
}

// The requests that are answered next: full pieces together, as far as they are on their way, and
// others by themselves. What was received beyond them waits in the session.
bool FileDoor::receive_group(int peer, Session& session, std::vector<Asked>& group) {
  group.clear();
  while (group.size() < files::LaneDigest::lanes_max) {
    if (!session.waiting) {
      if (!group.empty() && !expects_another(peer))
        return true;
      session.waiting.emplace();
      if (!receive_request(peer, *session.waiting))
        return false;
    }
    const bool together = is_full_piece(session.waiting->request) &&
                          (group.size() + 1) * files::piece_bytes <= session.bytes_left;
    if (!together && !group.empty())
      return true;
    group.push_back(std::move(*std::exchange(session.waiting, std::nullopt)));
    if (!together)
      return true;
  }
  return true;
}

void FileDoor::serve(int peer) {
  auto grant = redeem(peer);
  if (!grant)
    return;
  Session session{.grant = std::move(*grant)};
  const files::AlignedMemory buffer = files::aligned_memory(buffer_bytes);
  std::vector<Asked> group;
  while (receive_group(peer, session, group)) {
    const DoorRequest& request = group[0].request;
    if (!is_valid(request) ||
        (request.kind == DoorRequest::pack && !net::receive_all(peer, buffer.get(), request.size)))
      return;
    const std::uint64_t bytes = group.size() * std::uint64_t{request.size};
    if (bytes > session.bytes_left) {
      if (!send_answer(peer, DoorAnswer::exhausted, {}))
        return;
      continue;
    }
    session.bytes_left -= bytes;
    if (is_full_piece(request) ? !answer_together(peer, group, buffer.get(), session)
                               : !answer(peer, group[0], buffer.get(), session.grant))
      return;
  }
}

}  // namespace billow::head
