#include "agent/file_service.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "files/pack.h"
#include "files/scan.h"
#include "net/blocking_client.h"

namespace billow::agent {
namespace {

constexpr std::size_t line_bytes_max = 200;
constexpr int peer_patience_s = 120;   // a job that neither reads nor writes for so long is not waited for

std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t n = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), n);  // a leading zero byte: no file
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n)};
}

Status send_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno("files", n == 0 ? EPIPE : errno);
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Status receive(int fd, char* into, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::recv(fd, into, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(Code::unavailable, "the transfer of files broke off");
    into += n;
    size -= static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> receive_line(int fd) {
  std::string line;
  for (char c = 0; line.size() < line_bytes_max;) {
    BILLOW_TRY_VOID(receive(fd, &c, 1));
    if (c == '\n') return line;
    line += c;
  }
  return fail(Code::invalid, "a line is too long");
}

void be_patient(int fd) {
  const timeval patience{peer_patience_s, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

// The head, as this node.
class HeadClient {
 public:
  HeadClient(const net::Endpoint& head, const net::TlsClientOptions& tls, std::string token) : http_({.endpoint = head, .tls = tls}), token_(std::move(token)) {}
  Result<std::string> call(net::Method method, std::string target, std::string body = {}) {
    net::BlockingClient::Call call{.method = method, .target = std::move(target), .body = std::move(body), .timeout = seconds(120)};
    call.headers.set("Authorization", "Bearer " + token_);
    if (!call.body.empty()) call.headers.set("Content-Type", "application/octet-stream");
    auto response = BILLOW_TRY(http_.request(call));
    if (response.status >= 300) {
      std::string why = fmt::format("the head answered {}", response.status);
      if (const auto json = parse_json(response.body); json && json->is_object()) why = std::string((*json)["detail"].str_or(why));
      return fail(net::code_of_status(response.status), why);
    }
    return std::move(response.body);
  }

 private:
  net::BlockingClient http_;
  std::string token_;
};

}  // namespace

std::string work_path(const std::string& work_dir, TaskId task) { return fmt::format("{}/{}", work_dir, task.value); }

FileService::FileService(net::Loop& loop, Options options)
    : loop_(loop), options_(std::move(options)), workers_(std::make_unique<net::Workers>(loop, net::Workers::Options{.threads = 4, .queue_max = 1024})) {}
FileService::~FileService() { workers_.reset(); }

Result<std::unique_ptr<FileService>> FileService::create(net::Loop& loop, Options options) {
  std::unique_ptr<FileService> service(new FileService(loop, std::move(options)));
  service->store_ = BILLOW_TRY(files::Store::open(service->options_.directory, service->options_.bytes_max));
  service->listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto [address, size] = address_of(service->options_.socket);
  const int fd = service->listener_.get();
  if (fd < 0 || ::bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(fd, 64) != 0) return fail_errno("the socket for files", errno);
  service->watch_ = loop.on_readable(fd, [raw = service.get()] { raw->accept(); });
  return service;
}

void FileService::accept() {
  while (true) {
    Fd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) return;
    ucred who{};
    socklen_t size = sizeof who;
    const auto task = ::getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid > 0 ? options_.task_of(who.pid) : std::nullopt;
    if (!task) {
      (void)send_all(peer.get(), "again\n");
      continue;
    }
    be_patient(peer.get());
    auto shared = std::make_shared<Fd>(std::move(peer));
    const Status queued = workers_->submit([this, shared, task = *task, head = options_.head()]() -> std::function<void()> {
      serve(std::move(*shared), task, head);
      return [] {};
    });
    if (!queued) (void)send_all(shared->get(), "again\n");
  }
}

void FileService::serve(Fd peer, TaskId task, const net::Endpoint& head) {
  const auto line = receive_line(peer.get());
  if (!line) return;
  Status done = fail(Code::invalid, "not understood");
  if (line->starts_with("get ")) done = get(peer.get(), std::string_view(*line).substr(4), head);
  else if (line->starts_with("put "))
    if (const auto bytes = parse_int(line->substr(4), 1, static_cast<std::int64_t>(files::tree_list_bytes_max))) done = put(peer.get(), task, static_cast<std::uint64_t>(*bytes), head);
  if (done) return;
  log_warn("task {}: files: {}", task.value, done.error().message);
  std::string text = done.error().message;
  std::replace(text.begin(), text.end(), '\n', ' ');
  (void)send_all(peer.get(), fmt::format("error {}\n", text));
}

Status FileService::fetch(const Sha256& digest, const net::Endpoint& at, std::string& list) {
  std::lock_guard once(fetching_);
  const std::string token = BILLOW_TRY(read_file(options_.token_file, 4096));
  HeadClient head(at, options_.tls, std::string(trim(token)));
  if (auto known = store_->read_tree(digest)) list = std::move(*known);
  else list = BILLOW_TRY(head.call(net::Method::get, "/v1/files/trees/" + files::digest_hex(digest)));
  if (sha256(list) != digest) return fail(Code::invalid, "the list of files is not what its digest says");
  const files::Tree tree = BILLOW_TRY(files::decode(list));
  std::vector<Sha256> all;
  for (const files::Entry& e : tree.entries) all.insert(all.end(), e.pieces.begin(), e.pieces.end());
  const std::vector<Sha256> missing = store_->missing(all);
  const std::unordered_set<Sha256, files::DigestHash> wanted(missing.begin(), missing.end());
  std::unordered_set<Sha256, files::DigestHash> asked;
  std::vector<Sha256> batch;
  std::size_t bytes = 0;
  const auto flush = [&]() -> Status {
    if (batch.empty()) return {};
    BILLOW_TRY_VOID(store_->add(BILLOW_TRY(head.call(net::Method::post, "/v1/files/pieces", files::encode_digests(batch)))));
    for (const Sha256& one : batch)
      if (!store_->has(one)) return fail(Code::internal, "the head did not give what it was asked for");
    batch.clear();
    bytes = 0;
    return {};
  };
  for (const files::Entry& e : tree.entries)
    for (std::size_t i = 0; i < e.pieces.size(); ++i) {
      if (!wanted.contains(e.pieces[i]) || !asked.insert(e.pieces[i]).second) continue;
      const std::size_t size = files::piece_size(e, i) + files::pack_header_bytes;
      if (bytes + size > files::pack_bytes_wanted) BILLOW_TRY_VOID(flush());
      batch.push_back(e.pieces[i]);
      bytes += size;
    }
  BILLOW_TRY_VOID(flush());
  return store_->add_tree(digest, list);
}

Status FileService::get(int peer, std::string_view text, const net::Endpoint& head) {
  const Sha256 digest = BILLOW_TRY(files::parse_digest(text));
  std::string list;
  BILLOW_TRY_VOID(fetch(digest, head, list));
  const files::Tree tree = BILLOW_TRY(files::decode(list));
  BILLOW_TRY_VOID(send_all(peer, fmt::format("ok {}\n", list.size())));
  BILLOW_TRY_VOID(send_all(peer, list));
  for (const files::Entry& e : tree.entries)
    for (const Sha256& piece : e.pieces) {
      const auto bytes = store_->read(piece);
      if (!bytes || !send_all(peer, *bytes)) {
        // It cannot be told by a word any more: the stream ends short, and the other side says that it broke off.
        if (!bytes) log_warn("files: {}", bytes.error().message);
        return {};
      }
    }
  return {};
}

Status FileService::put(int peer, TaskId task, std::uint64_t list_bytes, const net::Endpoint& at) {
  std::string list(list_bytes, '\0');
  BILLOW_TRY_VOID(receive(peer, list.data(), list.size()));
  const files::Tree tree = BILLOW_TRY(files::decode(list));
  const std::string token = BILLOW_TRY(read_file(options_.token_file, 4096));
  HeadClient head(at, options_.tls, std::string(trim(token)));
  const auto missing = BILLOW_TRY(files::decode_digests(BILLOW_TRY(head.call(net::Method::post, "/v1/files/trees", list))));
  std::unordered_set<Sha256, files::DigestHash> wanted(missing.begin(), missing.end());
  std::string pack, bytes;
  const auto flush = [&]() -> Status {
    if (!pack.empty()) BILLOW_TRY_VOID(head.call(net::Method::post, "/v1/files/packs", std::exchange(pack, {})));
    return {};
  };
  for (const files::Entry& e : tree.entries)
    for (std::size_t i = 0; i < e.pieces.size(); ++i) {
      bytes.resize(files::piece_size(e, i));
      BILLOW_TRY_VOID(receive(peer, bytes.data(), bytes.size()));
      if (wanted.erase(e.pieces[i]) == 0) continue;
      if (pack.size() + bytes.size() > files::pack_bytes_wanted) BILLOW_TRY_VOID(flush());
      files::add_piece(pack, e.pieces[i], bytes);
    }
  BILLOW_TRY_VOID(flush());
  if (!missing.empty() && !BILLOW_TRY(head.call(net::Method::post, "/v1/files/trees", list)).empty()) return fail(Code::unavailable, "the head did not keep all outputs");
  BILLOW_TRY_VOID(head.call(net::Method::put, fmt::format("/v1/tasks/{}/outputs", task.value), files::digest_hex(sha256(list))));
  return send_all(peer, "ok\n");
}

void FileService::forget(TaskId task) {
  const std::string path = work_path(options_.work_dir, task);
  (void)workers_->submit([path]() -> std::function<void()> {
    if (const Status gone = remove_tree(path); !gone && file_exists(path)) log_warn("{}", gone.error().message);
    return [] {};
  });
}

void FileService::forget_others(const std::vector<TaskId>& live) {
  DIR* dir = ::opendir(options_.work_dir.c_str());
  if (!dir) return;
  while (const dirent* item = ::readdir(dir))
    if (const auto number = parse_int(item->d_name, 1, INT64_MAX); number && std::find(live.begin(), live.end(), TaskId(static_cast<std::uint64_t>(*number))) == live.end())
      forget(TaskId(static_cast<std::uint64_t>(*number)));
  ::closedir(dir);
}

// ---- the job's side -------------------------------------------------------------------------------------------------

namespace {

// Connects and says the line. An agent that is not there (it restarts) or does not know the task yet is asked again for a while.
Result<Fd> ask(const std::string& socket, const std::string& line, std::string& answer, const std::function<Status(int)>& more) {
  const SteadyTime deadline = system_clock().steady() + seconds(30);
  while (true) {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto [address, size] = address_of(socket);
    Error trouble{Code::unavailable, "this machine's agent does not answer", ""};
    if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0) {
      Status sent = send_all(fd.get(), line);
      if (sent && more) sent = more(fd.get());
      auto got = receive_line(fd.get());   // also after a broken send: the agent may have said why
      if (got && *got != "again") {
        if (got->starts_with("error ")) return fail(Code::unavailable, got->substr(6));
        answer = std::move(*got);
        return fd;
      }
      if (!got && sent) trouble = got.error();
    }
    if (system_clock().steady() > deadline) return pass(trouble);
    ::usleep(50'000);
  }
}

}  // namespace

Status stage_files(const std::string& socket, const std::string& digest, const std::string& directory) {
  const Sha256 wanted = BILLOW_TRY(files::parse_digest(digest));
  std::string answer;
  const Fd fd = BILLOW_TRY(ask(socket, fmt::format("get {}\n", digest), answer, {}));
  const auto bytes = answer.starts_with("ok ") ? parse_int(answer.substr(3), 1, static_cast<std::int64_t>(files::tree_list_bytes_max)) : Result<std::int64_t>(fail(Code::internal, "the agent answers oddly"));
  if (!bytes) return pass(bytes.error());
  std::string list(static_cast<std::size_t>(*bytes), '\0');
  BILLOW_TRY_VOID(receive(fd.get(), list.data(), list.size()));
  if (sha256(list) != wanted) return fail(Code::invalid, "the list of files is not what its digest says");
  const files::Tree tree = BILLOW_TRY(files::decode(list));
  // Pieces come in the list's order; their sizes follow from it.
  std::vector<std::size_t> sizes;
  for (const files::Entry& e : tree.entries)
    for (std::size_t i = 0; i < e.pieces.size(); ++i) sizes.push_back(files::piece_size(e, i));
  std::size_t next = 0;
  return files::write_tree(directory, tree, [&](const Sha256& piece) -> Result<std::string> {
    std::string out(sizes[next++], '\0');
    BILLOW_TRY_VOID(receive(fd.get(), out.data(), out.size()));
    if (sha256(out) != piece) return fail(Code::invalid, "a piece of a file is not what its digest says");
    return out;
  });
}

Status leave_outputs(const std::string& socket, const std::string& directory, const std::vector<std::string>& paths) {
  std::vector<std::string> there;
  for (const std::string& path : paths) {
    struct stat info {};
    if (::lstat((directory + "/" + path).c_str(), &info) == 0) there.push_back(path);
  }
  files::Scan found;
  if (!there.empty()) found = BILLOW_TRY(files::scan({.root = directory, .only = there, .ignore_files = false, .cache = {}}));
  const std::string list = files::encode(found.tree);
  std::string answer;
  BILLOW_TRY(ask(socket, fmt::format("put {}\n", list.size()), answer, [&](int fd) -> Status {
    BILLOW_TRY_VOID(send_all(fd, list));
    for (const files::Entry& e : found.tree.entries)
      for (const Sha256& piece : e.pieces) BILLOW_TRY_VOID(send_all(fd, BILLOW_TRY(files::read_piece(found.sources.at(piece), piece))));
    return {};
  }));
  return answer == "ok" ? Status{} : fail(Code::internal, "the agent answers oddly");
}

}  // namespace billow::agent
