#include "client/request/file_door.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "base/file.h"
#include "base/platform.h"
#include "base/text.h"
#include "client/request/upload_threads.h"
#include "files/pack.h"
#include "net/blocking_io.h"
#include "net/sockets.h"
#include "process/passed_descriptors.h"

namespace billow::client {
namespace {

using files::DoorAnswer;
using files::DoorRequest;
using files::Undigested;

// More than cores: while one waits for the head's disk, another is read and hashed.
constexpr std::size_t threads_max = 4;
constexpr std::uint64_t small_bytes_max = 256 << 10;  // of a file that is read and sent here
constexpr std::size_t batch_bytes_wanted = 1 << 20;
constexpr std::size_t batch_files_max = 512;
constexpr std::size_t together_max = 16;  // pieces that the head hashes at once

// Either some small files, or one piece of a large one.
struct Part {
  std::size_t first = 0, count = 1;  // files
  std::size_t piece = 0;
  bool whole_files = true;
};

std::vector<Part> parts_of(const std::vector<Undigested>& files) {
  std::vector<Part> out;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::uint64_t size = files[i].size;
    if (size > small_bytes_max) {
      for (std::size_t piece = 0; piece * files::piece_bytes < size; ++piece)
        out.push_back({i, 1, piece, false});
      continue;
    }
    const bool joins = !out.empty() && out.back().whole_files &&
                       out.back().first + out.back().count == i &&
                       out.back().count < batch_files_max && bytes + size <= batch_bytes_wanted;
    if (!joins) {
      out.push_back({i, 0, 0, true});
      bytes = 0;
    }
    ++out.back().count;
    bytes += size + files::pack_header_bytes;
  }
  return out;
}

// Why something was not done: an error for the user, or none, and the files go another way.
using Trouble = std::optional<Error>;

class Connection {
 public:
  static std::optional<Connection> open(const files::DoorTicket& ticket) {
    Connection out;
    out.fd_ = Fd(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (!out.fd_ || ticket.socket.size() + 1 > sizeof address.sun_path ||
        ticket.ticket.size() != files::door_ticket_bytes)
      return std::nullopt;
    ::fcntl(out.fd_.get(), F_SETFD, FD_CLOEXEC);
    net::set_timeouts(out.fd_.get(), 120);  // as for answers over HTTP
    std::memcpy(address.sun_path + 1, ticket.socket.data(), ticket.socket.size());
    const auto size =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + ticket.socket.size());
    if (::connect(out.fd_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
        net::sockets::peer_uid(out.fd_.get()) != ticket.uid || !out.send(ticket.ticket))
      return std::nullopt;
    return out;
  }

  // False: the connection is gone.
  bool ask(const DoorRequest& request, std::string_view content, int attached) {
    return send_request(request, content, attached) && receive_answer();
  }
  bool send_request(const DoorRequest& request, std::string_view content, int attached) {
    const iovec parts[2] = {{const_cast<DoorRequest*>(&request), sizeof request},
                            {const_cast<char*>(content.data()), content.size()}};
    const std::span<const int> descriptors(&attached, attached >= 0 ? 1 : 0);
    const ssize_t sent = send_with_descriptors(fd_.get(), parts, descriptors);
    if (sent < static_cast<ssize_t>(sizeof request))
      return false;
    bytes_left_ -= std::min<std::uint64_t>(bytes_left_, request.size);
    return send(content.substr(static_cast<std::size_t>(sent) - sizeof request));
  }
  bool receive_answer() {
    return receive(&answer_, sizeof answer_) && answer_.size <= (1u << 20) && receive_text();
  }
  // Whether the ticket is not used up by then.
  bool is_good_for(std::uint64_t bytes) const { return bytes <= bytes_left_; }
  const DoorAnswer& answer() const { return answer_; }
  const std::string& text() const { return text_; }

 private:
  bool send(std::string_view data) { return net::send_all(fd_.get(), data); }
  bool receive(void* into, std::size_t size) { return net::receive_all(fd_.get(), into, size); }
  bool receive_text() {
    text_.resize(answer_.size);
    return receive(text_.data(), text_.size());
  }

  Fd fd_;
  std::uint64_t bytes_left_ = files::door_bytes_per_ticket;
  DoorAnswer answer_;
  std::string text_;
};

// The error that the head sent: its code, message and hint, a line each.
Error error_in(const std::string& text) {
  const auto lines = split(text, '\n');
  const auto code = parse_int(lines[0], 0, 100);
  return {code ? static_cast<Code>(*code) : Code::internal,
          lines.size() > 1 ? lines[1] : "the head could not store the files",
          lines.size() > 2 ? lines[2] : ""};
}

class Bringer {
 public:
  Bringer(std::vector<Undigested>& files,
          const std::function<Result<files::DoorTicket>()>& ticket,
          std::atomic<std::uint64_t>& sent)
      : files_(files), ticket_(ticket), sent_(sent), parts_(parts_of(files)), groups_(groups()) {
    for (Undigested& file : files_)
      file.pieces.resize((file.size + files::piece_bytes - 1) / files::piece_bytes);
  }

  Result<bool> run() {
    std::uint64_t total = 0;
    for (const Undigested& file : files_)
      total += file.size;
    upload_in_threads({std::min(threads_max, groups_.size()), total, sent_}, [this] { work(); });
    if (trouble_)
      return pass(*trouble_);
    return !failed_;
  }

 private:
  void work() {
    std::optional<Connection> head = connect();
    std::string pack;
    Trouble trouble;
    for (std::size_t i; (i = next_++) < groups_.size();) {
      const std::span<const Part> group = groups_[i];
      if (head && (group.size() > 1 ? bring_together(group, head, pack, trouble)
                                    : bring(group[0], head, pack, trouble)))
        continue;
      next_ = groups_.size();
      std::lock_guard lock(mutex_);
      failed_ = true;
      if (trouble && !trouble_)
        trouble_ = trouble;
      return;
    }
  }

  // Full pieces are asked for together, as far as that leaves work for every thread.
  std::vector<std::span<const Part>> groups() const {
    std::size_t full = 0;
    for (const Part& part : parts_)
      full += is_full_piece(part) ? 1 : 0;
    const std::size_t size_max = std::clamp(full / threads_max, std::size_t{1}, together_max);
    std::vector<std::span<const Part>> out;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const bool joins = !out.empty() && is_full_piece(parts_[i]) &&
                         is_full_piece(out.back().back()) && out.back().size() < size_max;
      const std::size_t before = joins ? out.back().size() : 0;
      if (joins)
        out.pop_back();
      out.emplace_back(&parts_[i - before], before + 1);
    }
    return out;
  }

  std::optional<Connection> connect() {
    std::lock_guard lock(ticket_mutex_);
    const auto ticket = ticket_();
    return ticket ? Connection::open(*ticket) : std::nullopt;
  }

  bool bring(const Part& part, std::optional<Connection>& head, std::string& pack, Trouble& why) {
    if (part.whole_files)
      return read_files(part, pack) &&
             exchange({DoorRequest::pack, static_cast<std::uint32_t>(pack.size()), 0}, pack, -1,
                      head, why) &&
             note(part, head->text());
    return bring_piece(part, head, pack, why);
  }

  bool is_full_piece(const Part& part) const {
    return !part.whole_files && size_of(part) == files::piece_bytes;
  }
  std::uint32_t size_of(const Part& part) const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(files::piece_bytes, files_[part.first].size - offset_of(part)));
  }
  static std::uint64_t offset_of(const Part& part) {
    return part.piece * std::uint64_t{files::piece_bytes};
  }

  // All are asked for before the first answer. What is not answered with a digest is brought again
  // by itself.
  bool bring_together(std::span<const Part> parts,
                      std::optional<Connection>& head,
                      std::string& pack,
                      Trouble& why) {
    if (!head->is_good_for(parts.size() * files::piece_bytes) && !(head = connect()))
      return false;
    std::vector<Fd> opened;
    for (const Part& part : parts) {
      opened.emplace_back(
          ::open(files_[part.first].path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      if (!opened.back() ||
          !head->send_request({DoorRequest::piece, size_of(part), offset_of(part)}, {},
                              opened.back().get()))
        return false;
    }
    std::vector<const Part*> again;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!head->receive_answer())
        return false;
      if (head->answer().status != DoorAnswer::digests ||
          !is_unchanged(opened[i].get(), files_[parts[i].first]) || !note(parts[i], head->text()))
        again.push_back(&parts[i]);
    }
    return std::ranges::all_of(
        again, [&](const Part* part) { return bring_piece(*part, head, pack, why); });
  }

  // Its pieces must be those of one state of the file.
  static bool is_unchanged(int fd, const Undigested& file) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 && platform::modified_ns(info) == file.mtime_ns &&
           platform::changed_ns(info) == file.ctime_ns;
  }

  // The head reads from the descriptor, unless it lies in a file system that it does not read from.
  bool bring_piece(const Part& part,
                   std::optional<Connection>& head,
                   std::string& pack,
                   Trouble& why) {
    const Undigested& file = files_[part.first];
    const std::uint64_t offset = offset_of(part);
    const std::uint32_t size = size_of(part);
    const Fd fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd || !exchange({DoorRequest::piece, size, offset}, {}, fd.get(), head, why))
      return false;
    if (head->answer().status == DoorAnswer::unwanted) {
      begin_piece(pack, size);
      if (!read_at(fd.get(), pack, size, offset) ||
          !exchange({DoorRequest::pack, static_cast<std::uint32_t>(pack.size()), 0}, pack, -1, head,
                    why))
        return false;
    }
    return is_unchanged(fd.get(), file) && note(part, head->text());
  }

  static void begin_piece(std::string& pack, std::uint64_t size) {
    pack.clear();
    add_header(pack, size);
  }
  static void add_header(std::string& pack, std::uint64_t size) {
    pack.append(32, '\0');
    for (int i = 0; i < 8; ++i)
      pack += static_cast<char>(size >> (8 * i));
  }
  // Appends just so many bytes.
  static bool read_at(int fd, std::string& pack, std::size_t size, std::uint64_t offset) {
    const std::size_t begin = pack.size();
    pack.resize(begin + size);
    for (std::size_t done = 0; done < size;) {
      const ssize_t got =
          ::pread(fd, pack.data() + begin + done, size - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        return false;
      done += static_cast<std::size_t>(got);
    }
    return true;
  }

  bool read_files(const Part& part, std::string& pack) {
    pack.clear();
    for (std::size_t i = part.first; i < part.first + part.count; ++i) {
      const Fd fd(::open(files_[i].path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      add_header(pack, files_[i].size);
      if (!fd || !read_at(fd.get(), pack, files_[i].size, 0))
        return false;
    }
    return true;
  }

  // With another ticket, if the first is used up.
  bool exchange(const DoorRequest& request,
                std::string_view content,
                int attached,
                std::optional<Connection>& head,
                Trouble& why) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      if (!head->ask(request, content, attached))
        return false;
      if (head->answer().status == DoorAnswer::exhausted) {
        if (!(head = connect()))
          return false;
        continue;
      }
      if (head->answer().status != DoorAnswer::error)
        return true;
      // A file that changed is read again, here.
      if (const Error error = error_in(head->text()); error.code != Code::conflict)
        why = error;
      return false;
    }
    return false;
  }

  bool note(const Part& part, const std::string& text) {
    const auto digests = files::decode_digests(text);
    if (!digests || digests->size() != part.count)
      return false;
    for (std::size_t i = 0; i < part.count; ++i) {
      Undigested& file = files_[part.first + i];
      file.pieces[part.piece] = (*digests)[i];
      sent_ += part.whole_files ? file.size : size_of(part);
    }
    return true;
  }

  std::vector<Undigested>& files_;
  const std::function<Result<files::DoorTicket>()>& ticket_;
  std::atomic<std::uint64_t>& sent_;
  const std::vector<Part> parts_;
  const std::vector<std::span<const Part>> groups_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_, ticket_mutex_;
  bool failed_ = false;
  Trouble trouble_;
};

}  // namespace

Result<bool> FileDoor::bring(std::vector<files::Undigested>& files) {
  auto done = Bringer(files, ticket_, sent_).run();
  if (!done || !*done)
    for (files::Undigested& file : files)
      file.pieces.clear();
  return done;
}

}  // namespace billow::client
