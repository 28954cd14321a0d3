#include "agent/content/file_client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

#include "agent/content/file_socket.h"
#include "agent/content/staged_tree.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "files/scan.h"
#include "net/ask_keepalive.h"

namespace billow::agent {
namespace {

using namespace file_socket;

constexpr Duration away_patience = seconds(30);
constexpr Duration busy_patience = minutes(10);
constexpr int looks_at_outputs = 3;  // a process may still write to them

// Connects and sends the line. Retries for a while if the agent is restarting or does not know the
// task yet.
Result<Fd> ask(const std::string& socket,
               const std::string& line,
               std::string& answer,
               const std::function<Status(int)>& more,
               const std::function<bool()>& hopeless = {}) {
  std::optional<SteadyTime> busy_until;
  SteadyTime deadline = system_clock().steady() + away_patience;
  while (true) {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto [address, size] = net::socket_address(socket);
    Error trouble{Code::unavailable, "this node's agent does not answer", ""};
    if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      trouble.message += fmt::format(" ({})", ::strerrordesc_np(errno));
    } else {
      Status sent = send_all(fd.get(), line);
      if (sent && more)
        sent = more(fd.get());
      if (!sent && hopeless && hopeless())
        return pass(sent.error());
      auto got =
          receive_line(fd.get());  // even after a failed send: the agent may have sent the reason
      if (got && *got == "busy") {
        deadline = system_clock().steady() + away_patience;
        if (!busy_until)
          busy_until = system_clock().steady() + busy_patience;
        trouble.message = "this node's agent is busy with other jobs' files";
      }
      if (got && *got == "again")
        trouble.message = "this node's agent does not recognize this process as part of a job";
      if (got && *got != "again" && *got != "busy") {
        if (got->starts_with("error "))
          return fail(Code::unavailable, got->substr(6));
        answer = std::move(*got);
        return fd;
      }
      if (!got && sent)
        trouble = got.error();
    }
    if (system_clock().steady() > deadline || (busy_until && system_clock().steady() > *busy_until))
      return pass(trouble);
    ::usleep(50'000);
  }
}

// Scans every path separately: an error in one is reported and does not affect the others.
files::Scan look_at(const std::string& directory,
                    const std::vector<std::string>& paths,
                    NotLeft& not_left) {
  files::Scan all;
  for (const std::string& path : paths) {
    struct stat info {};
    if (::lstat((directory + "/" + path).c_str(), &info) != 0) {
      if (errno == ENOENT)
        not_left.absent.push_back(path);
      else
        not_left.bad.push_back(fmt::format("{}: {}", path, ::strerrordesc_np(errno)));
      continue;
    }
    auto found =
        files::scan({.root = directory, .only = {path}, .ignore_files = false, .cache = {}});
    if (!found) {
      not_left.bad.push_back(fmt::format("{}: {}", path, found.error().message));
      continue;
    }
    files::Tree together = all.tree;
    for (files::Entry& e : found->tree.entries)
      if (std::none_of(all.tree.entries.begin(), all.tree.entries.end(),
                       [&](const files::Entry& one) { return one.path == e.path; }))
        together.entries.push_back(std::move(e));
    std::sort(together.entries.begin(), together.entries.end(),
              [](const files::Entry& a, const files::Entry& b) { return a.path < b.path; });
    // Check like the receiver does: the whole may be too large, or a path may be invalid.
    if (const auto fits = files::decode(files::encode(together)); !fits) {
      not_left.bad.push_back(fmt::format("{}: {}", path, fits.error().message));
      continue;
    }
    all.tree = std::move(together);
    all.sources.merge(found->sources);
  }
  return all;
}

}  // namespace

namespace {

// What the directory holds already: nothing, some of the files perhaps, or all that the list does
// not name.
enum class Holds { nothing, some, the_rest };
struct Announced {
  std::size_t list_bytes = 0;
  Holds holds = Holds::nothing;
};
Result<Announced> read_announced(const std::string& answer) {
  const auto parts = split(answer, ' ');
  if (parts.size() != 3 || parts[0] != "ok")
    return fail(Code::internal, answer.starts_with("error ") ? answer.substr(6)
                                                             : "unexpected answer from the agent");
  const auto bytes_max = static_cast<std::int64_t>(files::tree_list_bytes_max);
  const std::int64_t bytes = BILLOW_TRY(parse_int(parts[1], 1, bytes_max));
  const Holds holds = parts[2] == "part"   ? Holds::the_rest
                      : parts[2] == "kept" ? Holds::some
                                           : Holds::nothing;
  return Announced{static_cast<std::size_t>(bytes), holds};
}

// Removes what is not of the tree, asks for the entries that are not there, and returns them.
// `states` becomes those of the entries that are there.
Result<files::Tree> ask_for_missing(int fd,
                                    const std::string& directory,
                                    const files::Tree& tree,
                                    EntryStates& states) {
  std::string known(tree.entries.size() * sizeof(EntryState), '\0');
  BILLOW_TRY_VOID(receive(fd, known.data(), known.size()));
  states = BILLOW_TRY(decode_states(known, tree.entries.size()));
  const std::vector<bool> there = BILLOW_TRY(keep_only(directory, tree, states));
  files::Tree missing;
  std::string asked(there.size(), '0');
  for (std::size_t i = 0; i < there.size(); ++i)
    if (!there[i]) {
      asked[i] = '1';
      states[i] = {};
      missing.entries.push_back(tree.entries[i]);
    }
  BILLOW_TRY_VOID(send_all(fd, asked));
  return missing;
}

// Fewer and larger reads than there are pieces, but never beyond the last one.
class BufferedReader {
 public:
  BufferedReader(int fd, std::uint64_t left) : fd_(fd), left_(left) {}
  Status read(char* into, std::size_t size) {
    while (size > 0) {
      if (at_ == buffer_.size()) {
        if (size >= chunk) {
          BILLOW_TRY_VOID(receive(fd_, into, size));
          left_ -= size;
          return {};
        }
        buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(chunk, left_)));
        BILLOW_TRY_VOID(receive(fd_, buffer_.data(), buffer_.size()));
        left_ -= buffer_.size();
        at_ = 0;
      }
      const std::size_t n = std::min(size, buffer_.size() - at_);
      std::memcpy(into, buffer_.data() + at_, n);
      at_ += n;
      into += n;
      size -= n;
    }
    return {};
  }

 private:
  static constexpr std::size_t chunk = 128 << 10;
  int fd_;
  std::uint64_t left_;
  std::string buffer_;
  std::size_t at_ = 0;
};

// Reads the file list and then the pieces, as the agent sends them. Returns the listed tree, and
// sets the states of what was there before.
Result<files::Tree> receive_tree(int fd,
                                 const std::string& answer,
                                 const Sha256* wanted,
                                 const std::string& directory,
                                 bool agent_fills_large,
                                 EntryStates& states) {
  const Announced announced = BILLOW_TRY(read_announced(answer));
  std::string list(announced.list_bytes, '\0');
  BILLOW_TRY_VOID(receive(fd, list.data(), list.size()));
  if (wanted && announced.holds != Holds::the_rest && sha256(list) != *wanted)
    return fail(Code::invalid, "the list of files does not match its digest");
  files::Tree tree = BILLOW_TRY(files::decode(list));
  const files::Tree missing = announced.holds == Holds::some
                                  ? BILLOW_TRY(ask_for_missing(fd, directory, tree, states))
                                  : tree;
  if (announced.holds == Holds::the_rest && missing.entries.empty())
    return tree;
  // Pieces arrive in the list's order, which also determines their sizes.
  std::vector<std::size_t> piece_sizes;
  std::uint64_t left = 0;
  for (const files::Entry& e : missing.entries)
    for (std::size_t i = 0; i < e.pieces.size(); ++i)
      if (!agent_fills_large || e.size < filled_bytes_min) {
        piece_sizes.push_back(files::piece_size(e, i));
        left += piece_sizes.back();
      }
  std::size_t next = 0;
  BufferedReader in(fd, left);
  files::TreeSource source{.piece = [&](const Sha256& piece) -> Result<std::string> {
    std::string out(piece_sizes[next++], '\0');
    BILLOW_TRY_VOID(in.read(out.data(), out.size()));
    if (sha256(out) != piece)
      return fail(Code::invalid, "a piece of a file does not match its digest");
    return out;
  }};
  if (agent_fills_large) {
    source.alone = true;
    source.large_bytes_min = filled_bytes_min;
    source.large_at_once = filled_at_once;
    source.fill_large = [&](const std::vector<int>& descriptors) -> Status {
      for (const int one : descriptors)
        BILLOW_TRY_VOID(send_descriptor(fd, one));
      char filled = 0;
      return receive(fd, &filled, 1);
    };
  }
  BILLOW_TRY_VOID(files::write_tree(directory, missing, source));
  return tree;
}

}  // namespace

Status stage_files(const std::string& socket,
                   const std::string& digest,
                   const std::string& directory) {
  const Sha256 wanted = BILLOW_TRY(files::parse_digest(digest));
  std::string answer;
  // Agents of earlier versions do not know the words.
  std::string words = fmt::format("{}{}", fds_word, part_word);
  auto asked = ask(socket, fmt::format("get {}{}\n", digest, words), answer, {});
  for (const std::string_view fewer : {fds_word, std::string_view()}) {
    if (asked || asked.error().message != not_its_files)
      break;
    words = fewer;
    asked = ask(socket, fmt::format("get {}{}\n", digest, words), answer, {});
  }
  const Fd fd = BILLOW_TRY(std::move(asked));
  EntryStates known;
  const files::Tree tree =
      BILLOW_TRY(receive_tree(fd.get(), answer, &wanted, directory, !words.empty(), known));
  if (answer.ends_with(part_word) && tree.entries.empty())
    return {};
  // Without an answer the next job gets a new directory: not this job's trouble.
  if (const auto states = settled_states(directory, tree, std::move(known)))
    if (send_all(fd.get(), encode_states(*states)))
      (void)receive_line(fd.get());
  return {};
}

Status take_tree(int fd, const std::string& directory) {
  EntryStates none;
  BILLOW_TRY(receive_tree(fd, BILLOW_TRY(receive_line(fd)), nullptr, directory, false, none));
  return {};
}

Status give_tree(int fd, const std::string& directory, const std::string& path) {
  struct stat info {};
  if (!path.empty() && ::lstat((directory + "/" + path).c_str(), &info) != 0)
    return fail(errno == ENOENT ? Code::not_found : Code::forbidden,
                fmt::format("{}: {}", path, ::strerrordesc_np(errno)));
  const files::Scan found = BILLOW_TRY(files::scan(
      {.root = directory,
       .only = path.empty() ? std::vector<std::string>() : std::vector<std::string>{path},
       .ignore_files = false,
       .cache = {}}));
  const std::string list = files::encode(found.tree);
  BILLOW_TRY_VOID(files::decode(list));
  BILLOW_TRY_VOID(send_all(fd, fmt::format("put {}\n", list.size())));
  BILLOW_TRY_VOID(send_all(fd, list));
  for (const files::Entry& e : found.tree.entries)
    for (const Sha256& piece : e.pieces)
      BILLOW_TRY_VOID(send_all(fd, BILLOW_TRY(files::read_piece(found.sources.at(piece), piece))));
  const std::string answer = BILLOW_TRY(receive_line(fd));
  return answer == "ok"
             ? Status{}
             : fail(Code::unavailable, answer.starts_with("error ") ? answer.substr(6) : answer);
}

Result<BroughtInput> bring_input(const std::string& socket,
                                 const std::string& url,
                                 const std::string& path,
                                 const std::map<std::string, std::string>& variables) {
  Json asked = Json::object({{"url", url}, {"path", path}});
  for (const auto& [name, value] : variables)
    asked.set(name, value);
  const std::string text = asked.dump();
  std::string answer;
  BILLOW_TRY(ask(socket, fmt::format("input {}\n", text.size()), answer,
                 [&](int fd) { return send_all(fd, text); }));
  const auto parts = split(answer, ' ');
  BroughtInput out;
  if (parts.size() != 4 || parts[0] != "ok")
    return fail(Code::internal, "unexpected answer from the agent");
  for (std::size_t i = 0; i < 3; ++i)
    (i == 0   ? out.files
     : i == 1 ? out.bytes
              : out.fetched_bytes) =
        static_cast<std::uint64_t>(BILLOW_TRY(parse_int(parts[i + 1], 0, INT64_MAX)));
  return out;
}

Status leave_outputs(const std::string& socket,
                     const std::string& directory,
                     const std::vector<std::string>& paths,
                     NotLeft& not_left) {
  for (int look = 1;; ++look) {
    NotLeft found_wrong;
    const files::Scan found = look_at(directory, paths, found_wrong);
    const std::string list = files::encode(found.tree);
    std::optional<Error> changed;
    std::string answer;
    const auto done = ask(
        socket, fmt::format("put {}\n", list.size()), answer,
        [&](int fd) -> Status {
          BILLOW_TRY_VOID(send_all(fd, list));
          for (const files::Entry& e : found.tree.entries)
            for (const Sha256& piece : e.pieces) {
              const auto bytes = files::read_piece(found.sources.at(piece), piece);
              if (!bytes) {
                changed = bytes.error();
                ::shutdown(fd, SHUT_RDWR);
                return pass(bytes.error());
              }
              BILLOW_TRY_VOID(send_all(fd, *bytes));
            }
          return {};
        },
        [&] { return changed.has_value(); });
    if (changed && look < looks_at_outputs)
      continue;
    not_left = std::move(found_wrong);
    if (changed)
      return pass(*changed);
    if (!done)
      return pass(done.error());
    return answer == "ok" ? Status{} : fail(Code::internal, "unexpected answer from the agent");
  }
}

}  // namespace billow::agent
