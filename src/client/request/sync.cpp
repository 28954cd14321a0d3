#include "client/request/sync.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>

#include "base/file.h"
#include "base/platform.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/progress.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/request/file_door.h"
#include "client/request/upload_threads.h"
#include "core/model/surroundings.h"
#include "files/pack.h"
#include "files/root.h"
#include "files/scan.h"

namespace billow::client {
namespace {

constexpr std::size_t connections = 4;
constexpr int tries = 4;  // of one pack: what was sent before stays, so going on is cheap

// One file per directory, beside the user's other caches.
std::string cache_path(const std::string& directory) {
  const std::string cache = cache_directory();
  return cache.empty() ? "" : cache + "/scan/" + sha256_hex(directory).substr(0, 32);
}

// Content is octets, not the JSON that Client speaks; a connection of its own.
struct Octets {
  explicit Octets(const HeadAddress& address)
      : http({.endpoint = address.endpoint, .tls = address.tls}), token(address.token) {}
  net::BlockingClient http;
  std::string token;
  int stop_fd = -1;  // readable: the call ends
};
Result<std::string> octets(Octets& head,
                           net::Method method,
                           const std::string& target,
                           std::string body = {}) {
  net::BlockingClient::Call call{
      .method = method, .target = target, .body = std::move(body), .timeout = seconds(120)};
  call.headers.set("Authorization", "Bearer " + head.token);
  if (!call.body.empty())
    call.headers.set("Content-Type", "application/octet-stream");
  bool stopped = false;
  call.watch_fd = head.stop_fd;
  call.on_watch = [&stopped] {
    stopped = true;
    return false;
  };
  auto response = BILLOW_TRY(head.http.request(call));
  if (stopped)
    return fail(Code::unavailable, "interrupted");
  if (response.status >= 300)
    return pass(error_of(response));
  return std::move(response.body);
}

// Packs are cut from the list of what is missing, and sent by several connections at once.
class Sender {
 public:
  Sender(const HeadAddress& address, const files::Scan& scan, std::vector<Sha256> missing)
      : address_(address), scan_(scan), missing_(std::move(missing)) {}

  Result<std::uint64_t> run() {
    std::uint64_t total = 0;
    for (const Sha256& digest : missing_)
      if (const auto source = scan_.sources.find(digest); source != scan_.sources.end())
        total += source->second.size + files::pack_header_bytes;
    upload_in_threads({std::min(connections, missing_.size() / 8 + 1), total, sent_},
                      [this] { work(); });
    if (trouble_)
      return pass(*trouble_);
    return sent_.load();
  }

 private:
  std::vector<Sha256> next() {
    std::lock_guard lock(mutex_);
    std::vector<Sha256> out;
    if (trouble_)
      return out;
    for (std::size_t bytes = 0; at_ < missing_.size(); ++at_) {
      const auto source = scan_.sources.find(missing_[at_]);
      const std::size_t size =
          source == scan_.sources.end() ? 0 : source->second.size + files::pack_header_bytes;
      if (!out.empty() && bytes + size > files::pack_bytes_wanted)
        break;
      bytes += size;
      out.push_back(missing_[at_]);
    }
    return out;
  }
  Status send(Octets& head, const std::vector<Sha256>& digests) {
    std::string pack;
    for (const Sha256& digest : digests) {
      const auto source = scan_.sources.find(digest);
      if (source == scan_.sources.end())
        return fail(Code::internal, "the head asks for a file that this upload does not contain");
      files::add_piece(pack, digest, BILLOW_TRY(files::read_piece(source->second, digest)));
    }
    const std::size_t bytes = pack.size();
    for (int i = 1;; ++i) {
      const auto done = octets(head, net::Method::post, "/v1/files/packs", pack);
      if (done)
        break;
      if (i == tries || !is_away(done.error()))
        return pass(done.error());
      ::usleep(static_cast<useconds_t>(200'000 * i));
    }
    sent_ += bytes;
    return {};
  }
  void work() {
    Octets head(address_);
    while (true) {
      const auto digests = next();
      if (digests.empty())
        return;
      const Status done = send(head, digests);
      if (done)
        continue;
      std::lock_guard lock(mutex_);
      if (!trouble_)
        trouble_ = done.error();
      return;
    }
  }

  const HeadAddress& address_;
  const files::Scan& scan_;
  std::vector<Sha256> missing_;
  std::size_t at_ = 0;
  std::mutex mutex_;
  std::optional<Error> trouble_;
  std::atomic<std::uint64_t> sent_{0};
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

namespace {

using Look = std::function<Result<files::Scan>(const decltype(files::ScanOptions::digester)&)>;

// Whether the head is a process that can read from this one's descriptors.
bool is_on_this_machine(Client& client, const Json& status) {
  const net::Address& head = client.address().endpoint.address;
  const std::string_view theirs = status["root"].str_or("");
  return (head.is_unix() || is_loopback(head.host)) && !theirs.empty() &&
         theirs == files::root_id();
}

// Until the head has all of it. A file that changes while it is read is looked at again; one that
// never rests is an error.
Result<Upload> upload(Client& client, const std::string& shown, const Look& look) {
  // A head of this machine's is started by the first who asks.
  const Json status = BILLOW_TRY(client.get("/v1/status"));
  FileDoor door([&client]() -> Result<files::DoorTicket> {
    const Json ticket = BILLOW_TRY(client.post("/v1/files/door"));
    return files::DoorTicket{std::string(ticket["socket"].str_or("")),
                             std::string(ticket["ticket"].str_or("")),
                             static_cast<std::uint32_t>(ticket["uid"].uint_or(UINT32_MAX))};
  });
  const bool near = is_on_this_machine(client, status);
  Octets head(client.address());
  Upload out;
  for (int attempt = 1;; ++attempt) {
    const files::Scan found = BILLOW_TRY(
        near && attempt == 1 ? look([&](auto& files) { return door.bring(files); }) : look({}));
    const std::string list = files::encode(found.tree);
    if (list.size() > files::tree_list_bytes_max)
      return fail(Code::too_large, fmt::format("{} holds too many files", shown),
                  "list files that the job does not need in .billowignore");
    out.digest = files::digest_hex(sha256(list));
    out.files = found.tree.entries.size();
    out.bytes = found.tree.bytes();
    out.warnings = found.warnings;
    out.sent_bytes = std::max(out.sent_bytes, door.sent_bytes());
    const auto missing = BILLOW_TRY(files::decode_digests(
        BILLOW_TRY(octets(head, net::Method::post, "/v1/files/trees", list))));
    if (missing.empty())
      return out;
    if (near && attempt == 1 && found.sources.empty())
      continue;  // the head has lost what the cache remembers
    auto sent = Sender(client.address(), found, missing).run();
    if (!sent) {
      if (sent.error().code == Code::conflict && attempt < 3)
        continue;
      return pass(sent.error());
    }
    out.sent_bytes += *sent;
    if (BILLOW_TRY(octets(head, net::Method::post, "/v1/files/trees", list)).empty())
      return out;
    if (attempt == 3)
      return fail(Code::unavailable, "the head does not store the uploaded files",
                  "check whether its disk is full: billow status");
  }
}

}  // namespace

Result<Upload> upload_directory(Client& client, const std::string& directory) {
  return upload(client, directory, [&](const auto& digester) {
    return files::scan({.root = directory,
                        .only = {},
                        .ignore_files = true,
                        .cache = cache_path(directory),
                        .digester = digester});
  });
}

Result<Upload> upload_path(Client& client,
                           const std::string& path,
                           bool directory,
                           const std::string& place) {
  return upload(client, path, [&](const auto& digester) -> Result<files::Scan> {
    const auto slash = path.rfind('/');
    const std::string above = slash == std::string::npos ? "."
                              : slash == 0               ? "/"
                                                         : path.substr(0, slash),
                      name = slash == std::string::npos ? path : path.substr(slash + 1);
    files::Scan found = BILLOW_TRY(directory ? files::scan({.root = path,
                                                            .only = {},
                                                            .ignore_files = false,
                                                            .cache = {},
                                                            .digester = digester})
                                             : files::scan({.root = above,
                                                            .only = {name},
                                                            .ignore_files = false,
                                                            .cache = {},
                                                            .digester = digester}));
    // The directories that lead to its place come first.
    std::vector<files::Entry> entries;
    for (auto at = place.find('/'); at != std::string::npos; at = place.find('/', at + 1))
      entries.push_back(
          {.path = place.substr(0, at), .kind = files::Kind::directory, .mode = 0755});
    if (directory)
      entries.push_back({.path = place, .kind = files::Kind::directory, .mode = 0755});
    for (files::Entry& e : found.tree.entries) {
      e.path = directory ? place + "/" + e.path : place;
      entries.push_back(std::move(e));
    }
    if (!directory && entries.back().kind == files::Kind::link)
      return fail(Code::invalid, fmt::format("{} is a link", path), "name what it leads to");
    found.tree.entries = std::move(entries);
    return found;
  });
}

namespace {

// Ends a download from another thread: its connection is woken, and its writer removes the file
// that is not complete, which is waited for.
class DownloadStop {
 public:
  DownloadStop() {
    int ends[2] = {-1, -1};
    (void)platform::make_pipe(ends);
    wakes_ = Fd(ends[0]);
    wake_ = Fd(ends[1]);
  }
  int fd() const { return wakes_.get(); }
  bool stopped() const { return stopped_; }
  void stop() {
    constexpr std::chrono::seconds patience(10);
    stopped_ = true;
    (void)write_all(wake_.get(), "x");
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return done_; });
  }
  void writer_is_done() {
    std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_one();
  }

 private:
  Fd wakes_, wake_;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

// Of the tree what is at or below a path, under its own name or another.
Status keep_only(files::Tree& tree, const std::string& only, const std::string& as) {
  // "out/model.pt" arrives as "model.pt", "out" as "out/…".
  const auto slash = only.rfind('/');
  const std::size_t cut = slash == std::string::npos ? 0 : slash + 1;
  std::erase_if(tree.entries, [&](const files::Entry& e) {
    return e.path != only && !e.path.starts_with(only + "/");
  });
  if (tree.entries.empty())
    return fail(Code::not_found, fmt::format("there is no {} among the outputs", only),
                "omit the path to fetch them all");
  for (files::Entry& e : tree.entries) {
    e.path.erase(0, cut);
    if (!as.empty())
      e.path.replace(0, only.size() - cut, as);
  }
  return {};
}

}  // namespace

Status download_tree(Client& client, const Fetch& fetch) {
  const auto& [digest, directory, only, as] = fetch;
  const Sha256 wanted = BILLOW_TRY(files::parse_digest(digest));
  Octets head(client.address());
  const std::string list = BILLOW_TRY(octets(head, net::Method::get, "/v1/files/trees/" + digest));
  if (sha256(list) != wanted)
    return fail(Code::invalid, "the list of files does not match its digest");
  files::Tree tree = BILLOW_TRY(files::decode(list));
  if (!only.empty())
    BILLOW_TRY_VOID(keep_only(tree, only, as));
  BILLOW_TRY_VOID(make_directories(directory));
  // Pieces are needed in the list's order; each request brings as many of the next as fit.
  std::vector<std::pair<Sha256, std::size_t>> order;
  for (const files::Entry& e : tree.entries)
    for (std::size_t i = 0; i < e.pieces.size(); ++i)
      order.emplace_back(e.pieces[i], files::piece_size(e, i));
  std::size_t at = 0;
  std::unordered_map<Sha256, std::string, files::DigestHash> here;
  DownloadStop stop;
  head.stop_fd = stop.fd();
  const OnInterrupt left(
      fmt::format("the copy was interrupted; only the files that are complete are in {}",
                  directory),
      [&stop] { stop.stop(); });
  Progress progress("download", ProgressUnit::bytes);
  std::uint64_t arrived = 0;
  const auto fetch_piece = [&](const Sha256& piece) -> Result<std::string> {
    if (stop.stopped())
      return fail(Code::unavailable, "interrupted");
    if (!here.contains(piece)) {
      here.clear();
      std::vector<Sha256> batch;
      for (std::size_t bytes = 0, i = at; i < order.size(); ++i) {
        bytes += order[i].second + files::pack_header_bytes;
        if (!batch.empty() && bytes > files::pack_bytes_wanted)
          break;
        batch.push_back(order[i].first);
      }
      const std::string pack =
          BILLOW_TRY(octets(head, net::Method::post, "/v1/files/pieces?tree=" + digest,
                            files::encode_digests(batch)));
      BILLOW_TRY_VOID(
          files::each_piece(pack, [&](const Sha256& one, std::string_view bytes) -> Status {
            here[one] = std::string(bytes);
            return {};
          }));
    }
    ++at;
    const auto found = here.find(piece);
    if (found == here.end())
      return fail(Code::internal, "the head did not send all requested files");
    progress.update(arrived += found->second.size(), tree.bytes());
    return found->second;
  };
  const Status done = files::write_tree(directory, tree, fetch_piece);
  stop.writer_is_done();
  return done;
}

namespace {

// A head at an address of this machine is on it, unless a tunnel (ssh, kubectl port-forward) leads
// to it, or it is in a container.
bool sees_our_files(Client& client) {
  const net::Address& head = client.address().endpoint.address;
  if (head.is_unix())
    return true;
  if (!is_loopback(head.host))
    return false;
  const auto status = client.get("/v1/status");
  const std::string theirs(status ? (*status)["root"].str_or("") : "");
  return theirs.empty() || theirs == files::root_id();
}

// Whether the working directory goes along.
bool should_sync(Client& client, const JobRequest& request) {
  if (request.sync != Sync::automatic)
    return request.sync == Sync::yes;
  // What is brought and kept needs a directory of the job's own.
  if (!request.outputs.empty() || !request.spec.surroundings.inputs.empty() ||
      !request.spec.surroundings.outputs.empty() ||
      request.spec.surroundings.isolation == Isolation::strict)
    return true;
  return !sees_our_files(client);
}

// Jobs of an agent token see no directory of the machine, also where the head is here. Such tokens
// come in a variable; nobody else is made to wait for an answer.
bool is_for_agent(Client& client) {
  const char* token = std::getenv("BILLOW_TOKEN");
  if (!token || !*token)
    return false;
  const auto status = client.get("/v1/status");
  return status && status->at("you", "scope").str_or("") == "agent";
}

}  // namespace

Status sync_for_job(Client& client, const JobRequest& request, bool quiet, Environment& env) {
  for (const char* name : {surroundings::files, surroundings::outputs})
    env.erase(name);  // of a job that submits another
  if (!request.outputs.empty())
    env[surroundings::outputs] = join(request.outputs, "\n");
  const bool follows =
      should_sync(client, request) || (request.sync == Sync::automatic && is_for_agent(client));
  if (!follows) {
    if (!request.outputs.empty() || !request.spec.surroundings.inputs.empty() ||
        !request.spec.surroundings.outputs.empty())
      return fail(Code::invalid, "--input and --output need a copied working directory",
                  "omit --no-sync");
    return {};
  }
  const std::string& directory = request.spec.cwd;
  const char* home = std::getenv("HOME");
  if (request.sync == Sync::automatic && (directory == "/" || (home && directory == home))) {
    // Nobody means to upload all that by accident.
    if (!quiet)
      say(
          fmt::format("{} is not copied: the job starts in an empty directory; run it from a "
                      "project's directory, or pass --sync",
                      directory));
    files::Tree empty;
    const std::string list = files::encode(empty);
    Octets head(client.address());
    BILLOW_TRY_VOID(octets(head, net::Method::post, "/v1/files/trees", list));
    env[surroundings::files] = sha256_hex(list);
    return {};
  }
  if (!quiet && home && directory == home)
    say(
        fmt::format("warning: your whole home directory {} is copied to the job; a project's "
                    "directory is usually enough",
                    directory));
  const Upload done = BILLOW_TRY(upload_directory(client, directory));
  if (!quiet) {
    for (const std::string& warning : done.warnings)
      say("warning: " + printable(warning));
    if (done.sent_bytes > (1 << 20))
      say(fmt::format("{} of {} uploaded ({} files)", format_bytes(done.sent_bytes),
                      format_bytes(done.bytes), done.files));
  }
  if (!quiet && request.spec.pty && request.outputs.empty() &&
      request.spec.surroundings.outputs.empty())
    say("this terminal works in a copy of the directory, which is deleted when the job ends; keep "
        "files with --output PATH, or fetch them before with `billow cp JOB:PATH .`");
  env[surroundings::files] = done.digest;
  return {};
}

void say_results(const JobRequest& request, const std::string& job) {
  for (const std::string& path : request.outputs)
    say(fmt::format("results: billow cp {}:{} .", job, path));
}

}  // namespace billow::client
