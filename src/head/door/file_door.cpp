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
#include <span>
#include <utility>

#include "base/crypto.h"
#include "base/log.h"
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
// Of two large pieces, each behind its own page of headers.
constexpr std::size_t buffer_bytes = 2 * (files::large_pack_begin + files::piece_bytes);
static_assert(buffer_bytes >= files::pack_bytes_max);

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

// Whether the pieces can be hashed together and stored in one pack, in which both begin at a page.
// The store tells such a pack from others by its size.
bool fit_together(const DoorRequest& first, const DoorRequest& second) {
  return first.kind == DoorRequest::piece && second.kind == DoorRequest::piece &&
         is_valid(second) && first.size % files::large_pack_begin == 0 &&
         2 * files::large_pack_begin + first.size + second.size > files::pack_bytes_max;
}

// Whether the next request is on its way: a client asks for full pieces in twos.
bool expects_another(int peer, const DoorRequest& request) {
  constexpr int patience_ms = 1;  // much less than a piece takes
  pollfd waits{peer, POLLIN, 0};
  return request.kind == DoorRequest::piece && request.size == files::piece_bytes &&
         ::poll(&waits, 1, patience_ms) > 0;
}

std::string error_text(const Error& error) {
  return fmt::format("{}\n{}\n{}", static_cast<int>(error.code), error.message, error.hint);
}

// A file that became shorter is an error.
Status read_piece(int fd, const DoorRequest& request, char* into) {
  for (std::uint64_t done = 0; done < request.size;) {
    const ssize_t got =
        ::pread(fd, into + done, request.size - done, static_cast<off_t>(request.offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return fail(Code::conflict, "a file changed while it was read",
                  "try again when no program writes to it");
    done += static_cast<std::uint64_t>(got);
  }
  return {};
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
  BILLOW_TRY_VOID(read_piece(asked.attached.get(), request, buffer + files::large_pack_begin));
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

// Two pieces are hashed faster together. If anything is wrong with one, each gets its own answer.
bool FileDoor::answer_both(
    int peer, const Asked& first, const Asked& second, char* buffer, const Grant& grant) {
  const std::uint32_t sizes[] = {first.request.size, second.request.size};
  char* const behind = buffer + files::large_pack_begin + sizes[0];
  Result<std::vector<Sha256>> digests = fail(Code::invalid, "not read from here");
  if (is_read_here(first.attached.get()) && is_read_here(second.attached.get()) &&
      read_piece(first.attached.get(), first.request, buffer + files::large_pack_begin) &&
      read_piece(second.attached.get(), second.request, behind + files::large_pack_begin)) {
    files::begin_large_pack(buffer, {}, sizes[0]);
    files::begin_large_pack(behind, {}, sizes[1]);
    digests = store_.add_unnamed(
        grant.owner, {buffer, 2 * files::large_pack_begin + sizes[0] + sizes[1]}, grant.limit);
  }
  if (!digests || digests->size() != 2)
    return answer(peer, first, buffer, grant) && answer(peer, second, buffer, grant);
  return send_answer(peer, DoorAnswer::digests, files::encode_digests({(*digests)[0]})) &&
         send_answer(peer, DoorAnswer::digests, files::encode_digests({(*digests)[1]}));
}

void FileDoor::serve(int peer) {
  const auto grant = redeem(peer);
  if (!grant)
    return;
  const files::AlignedMemory buffer = files::aligned_memory(buffer_bytes);
  std::uint64_t left = files::door_bytes_per_ticket;
  std::optional<Asked> waiting;  // received before it was its turn
  while (true) {
    Asked asked;
    if (waiting)
      asked = std::move(*std::exchange(waiting, std::nullopt));
    else if (!receive_request(peer, asked))
      return;
    const DoorRequest& request = asked.request;
    if (!is_valid(request))
      return;
    if (request.kind == DoorRequest::pack && !net::receive_all(peer, buffer.get(), request.size))
      return;
    if (request.size > left) {
      if (!send_answer(peer, DoorAnswer::exhausted, {}))
        return;
      continue;
    }
    left -= request.size;
    if (Asked next; expects_another(peer, request) && receive_request(peer, next))
      waiting = std::move(next);
    if (!waiting || waiting->request.size > left || !fit_together(request, waiting->request)) {
      if (!answer(peer, asked, buffer.get(), *grant))
        return;
      continue;
    }
    left -= waiting->request.size;
    if (!answer_both(peer, asked, *waiting, buffer.get(), *grant))
      return;
    waiting.reset();
  }
}

}  // namespace billow::head
