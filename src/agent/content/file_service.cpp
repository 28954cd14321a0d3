#include "agent/content/file_service.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "agent/content/file_copy.h"
#include "agent/content/file_socket.h"
#include "agent/content/head_client.h"
#include "agent/content/input_terms.h"
#include "agent/content/project_cache.h"
#include "base/crypto.h"
#include "base/files/remove_tree.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "container/plan.h"
#include "core/model/surroundings.h"
#include "core/wire/codec.h"
#include "files/pack.h"
#include "files/scan.h"
#include "net/blocking_io.h"
#include "process/file_rights_linux.h"

namespace billow::agent {
namespace {

using namespace file_socket;

constexpr int first_line_patience_s = 10;
constexpr int peer_patience_s = 120;     // a job that neither reads nor writes is disconnected
constexpr std::size_t per_task_max = 2;  // connections; a slow job delays only itself
constexpr std::size_t served_max = 512;
constexpr std::size_t copies_max = 32;
constexpr int accepted_per_turn_max = 16;  // the rest waits in the queue of the socket
constexpr const char* owner_file = ".owner";
constexpr const char* spare_place = "spare";

std::string brought_file(const std::string& work_dir, TaskId task) {
  return work_path(work_dir, task) + ".inputs";
}

// Other jobs of the same owner use the cache, so such a job must not change its files.
bool is_confined(const TaskRecord& record) {
  const auto plan =
      wire::from_json_text<container::Plan>(record.variable(container::plan_variable));
  return plan && plan->confined;
}

// Names the view of the file system that this process has. A view of an earlier boot has nobody
// left who sees it.
std::string view_id() {
  char name[64];
  const ssize_t n = ::readlink("/proc/self/ns/mnt", name, sizeof name);
  const auto boot = read_file("/proc/sys/kernel/random/boot_id", 64);
  return n <= 0 || !boot ? ""
                         : fmt::format("{} {}", trim(*boot),
                                       std::string_view(name, static_cast<std::size_t>(n)));
}

// A directory of an agent whose data directory no longer exists. What an agent with another view of
// the file system has (in a container, for example) may exist without our seeing it.
bool is_left_behind(std::string_view owner, const std::string& view) {
  const auto lines = split(trim(owner), '\n');
  const std::string boot = view.substr(0, view.find(' '));
  if (lines.size() > 1 && lines[1] != view && std::string_view(lines[1]).starts_with(boot))
    return false;
  return !lines.empty() && !file_exists(std::string(trim(lines[0])));
}

}  // namespace

std::string work_path(const std::string& work_dir, TaskId task) {
  return fmt::format("{}/{}", work_dir, task.value);
}

FileService::FileService(net::Loop& loop, Options options)
    : loop_(loop),
      options_(std::move(options)),
      workers_(std::make_unique<net::Workers>(
          loop, net::Workers::Options{.threads = 1, .queue_max = 1 << 16})),
      removal_(loop) {}

FileService::~FileService() {
  doors_.clear();
  {
    std::unique_lock lock(serving_mutex_);
    for (const int fd : peers_)
      ::shutdown(fd, SHUT_RDWR);
  }
  threads_.join();
  workers_.reset();
  // Remove our directory if no job's files are left in it.
  bool empty = true;
  if (DIR* dir = ::opendir(options_.work_dir.c_str())) {
    while (const dirent* item = ::readdir(dir)) {
      const std::string_view name = item->d_name;
      empty = empty && (name == "." || name == ".." || name == owner_file ||
                        name == options_.door || name == spare_place);
    }
    ::closedir(dir);
  }
  if (empty)
    (void)remove_tree(options_.work_dir);
}

Status FileService::prepare_work_dir() {
  const std::string& own = options_.work_dir;
  place_ = BILLOW_TRY(OwnPlace::at(own));
  const std::string view = view_id();
  BILLOW_TRY_VOID(
      write_file_atomic(own + "/" + owner_file, options_.directory + "\n" + view + "\n", 0600));
  // Remove what agents left whose data directories no longer exist.
  const std::string above = own.substr(0, own.rfind('/'));
  DIR* dir = ::opendir(above.c_str());
  if (!dir)
    return {};
  while (const dirent* item = ::readdir(dir)) {
    const std::string path = above + "/" + item->d_name;
    if (!std::string_view(item->d_name).starts_with("billow-") || path == own)
      continue;
    if (!open_own_directory(path))
      continue;
    const auto owner = read_file(path + "/" + owner_file, 4096);
    if (owner && is_left_behind(*owner, view))
      (void)workers_->submit([path] { return remove_tree(path); }, [](const Status&) {});
  }
  ::closedir(dir);
  return {};
}

Result<std::unique_ptr<FileService>> FileService::create(net::Loop& loop, Options options) {
  if (options.cache_dir.empty())
    options.cache_dir = options.work_dir;
  std::unique_ptr<FileService> service(new FileService(loop, std::move(options)));
  FileService* raw = service.get();
  service->store_ = BILLOW_TRY(files::Store::open({.directory = service->options_.directory,
                                                   .bytes_max = service->options_.bytes_max,
                                                   .bytes_refused = 0,
                                                   .kept_at_least = {},
                                                   .needed = [raw] {
                                                     return raw->needed();
                                                   }}));
  BILLOW_TRY_VOID(service->prepare_work_dir());
  service->objects_ = BILLOW_TRY(ObjectCache::open(
      {service->options_.cache_dir + "/objects", service->options_.cache_bytes_max}));
  // Of an earlier agent, which alone knew what they hold.
  if (const Status gone = service->removal_.remove(raw->options_.work_dir + "/" + spare_place);
      !gone)
    log_warn("{}", gone.error().message);
  service->spares_ = std::make_unique<SpareDirs>(service->options_.work_dir + "/" + spare_place,
                                                 service->options_.bytes_max);
  service->serve_also(std::move(service->options_.listener));
  return service;
}

void FileService::serve_also(Fd listener) {
  const int fd = listener.get();
  doors_.push_back({std::move(listener), loop_.on_readable(fd, [this, fd] { accept(fd); })});
}

files::Store::Needed FileService::needed() {
  std::lock_guard lock(staging_mutex_);
  files::Store::Needed out;
  for (const auto& pieces : staging_)
    out.pieces.insert(out.pieces.end(), pieces.begin(), pieces.end());
  return out;
}

// One thread per connection, so that a slow job delays no other; each task may have few.
void FileService::accept(int listener) {
  for (int i = 0; i < accepted_per_turn_max; ++i) {
    Fd peer(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer)
      return;
    const auto who = peer_of(peer.get());
    const auto task = who ? options_.task_of(*who) : std::nullopt;
    if (!task) {
      (void)send_all(peer.get(), "again\n");
      continue;
    }
    {
      std::lock_guard lock(serving_mutex_);
      if (by_task_[*task] >= per_task_max || peers_.size() >= served_max) {
        if (by_task_[*task] == 0)
          by_task_.erase(*task);
        (void)send_all(peer.get(), "busy\n");
        continue;
      }
      ++by_task_[*task];
      peers_.insert(peer.get());
    }
    threads_.start([this, fd = peer.release(), task = *task, record = options_.record_of(*task),
                    head = options_.head()] {
      if (record)
        serve(fd, task, *record, head);
      else
        (void)send_all(fd, "again\n");
      std::lock_guard lock(serving_mutex_);
      peers_.erase(fd);
      ::close(fd);
      if (--by_task_[task] == 0)
        by_task_.erase(task);
    });
  }
}

void FileService::serve(int peer,
                        TaskId task,
                        const TaskRecord& record,
                        const net::Endpoint& head) {
  net::set_timeouts(peer, first_line_patience_s);
  const auto line = receive_line(peer);
  if (!line)
    return;
  net::set_timeouts(peer, peer_patience_s);
  Status done = fail(Code::invalid, "unknown request");
  if (line->starts_with("get ")) {
    // Only its own tree: a job may read what its user may, not everything this node may.
    const std::string tree = record.variable(surroundings::files);
    const std::string_view asked = std::string_view(*line).substr(4);
    const std::string_view digest = asked.substr(0, asked.find(' ')),
                           words = asked.substr(digest.size());
    const bool parts = words.ends_with(part_word);
    const std::string_view before = words.substr(0, words.size() - (parts ? part_word.size() : 0));
    if (digest != tree || (before != fds_word && !words.empty()))
      done = fail(Code::forbidden, not_its_files);
    else
      done = get(peer, asked, head, {task, !words.empty()});
  } else if (line->starts_with("put ")) {
    if (const auto bytes =
            parse_int(line->substr(4), 1, static_cast<std::int64_t>(files::tree_list_bytes_max)))
      done = outputs(peer, task, static_cast<std::uint64_t>(*bytes), head);
  } else if (line->starts_with("input ")) {
    if (const auto bytes = parse_int(line->substr(6), 1, 64 << 10))
      done = input(peer, task, record, static_cast<std::uint64_t>(*bytes));
  }
  if (done)
    return;
  log_warn("task {}: files: {}", task.value, done.error().message);
  std::string text = done.error().message.substr(0, line_bytes_max - 16);
  std::replace(text.begin(), text.end(), '\n', ' ');
  (void)send_all(peer, fmt::format("error {}\n", text));
}

// Sends a tree that arrives over the socket to the head and returns its digest.
Result<std::string> FileService::put(int peer, std::uint64_t list_bytes, const net::Endpoint& at) {
  std::string list(list_bytes, '\0');
  BILLOW_TRY_VOID(receive(peer, list.data(), list.size()));
  const files::Tree tree = BILLOW_TRY(files::decode(list));
  HeadClient head(at, options_.tls(), options_.credential);
  const auto missing = BILLOW_TRY(
      files::decode_digests(BILLOW_TRY(head.call(net::Method::post, "/v1/files/trees", list))));
  files::DigestSet wanted(missing.begin(), missing.end());
  std::string pack, bytes;
  const auto flush = [&]() -> Status {
    if (!pack.empty())
      BILLOW_TRY_VOID(head.call(net::Method::post, "/v1/files/packs", std::exchange(pack, {})));
    return {};
  };
  for (const files::Entry& e : tree.entries)
    for (std::size_t i = 0; i < e.pieces.size(); ++i) {
      bytes.resize(files::piece_size(e, i));
      BILLOW_TRY_VOID(receive(peer, bytes.data(), bytes.size()));
      // Pieces that the head has are not sent again, but the job must have the content of every
      // digest it names: otherwise a digest alone would give access to it.
      if (sha256(bytes) != e.pieces[i])
        return fail(Code::invalid,
                    fmt::format("the content of {} does not match its digest", e.path));
      if (wanted.erase(e.pieces[i]) == 0)
        continue;
      if (pack.size() + bytes.size() > files::pack_bytes_wanted)
        BILLOW_TRY_VOID(flush());
      files::add_piece(pack, e.pieces[i], bytes);
    }
  BILLOW_TRY_VOID(flush());
  if (!missing.empty() &&
      !BILLOW_TRY(head.call(net::Method::post, "/v1/files/trees", list)).empty())
    return fail(Code::unavailable, "the head did not store all outputs");
  return files::digest_hex(sha256(list));
}

Status FileService::outputs(int peer,
                            TaskId task,
                            std::uint64_t list_bytes,
                            const net::Endpoint& at) {
  const std::string digest = BILLOW_TRY(put(peer, list_bytes, at));
  HeadClient head(at, options_.tls(), options_.credential);
  BILLOW_TRY_VOID(
      head.call(net::Method::put, fmt::format("/v1/tasks/{}/outputs", task.value), digest));
  return send_all(peer, "ok\n");
}

void FileService::copy(const wire::agent_v1::CopyFiles& asked,
                       const TaskRecord& record,
                       std::function<void(Result<std::string>)> done) {
  CopyHelper helper{record.cwd, record.identity, !asked.tree.empty(), asked.path};
  if (const std::string own = work_path(options_.work_dir, asked.task); file_exists(own))
    helper.cwd = own;
  if (!helper.path.empty())
    if (const auto plain = plain_path(helper.path); !plain)
      return done(pass(plain.error()));
  {
    std::lock_guard lock(serving_mutex_);
    if (copies_ >= copies_max)
      return done(
          fail(Code::exhausted, "too many copies are running on this node: try again in a moment"));
    ++copies_;
  }
  threads_.start([this, helper, tree = asked.tree, head = options_.head(), done = std::move(done)] {
    auto digest = std::make_shared<Result<std::string>>(std::string());
    const Status went = run_copy_helper(helper, [&](int fd) -> Status {
      if (helper.into)
        return get(fd, tree, head, {});
      const std::string line = BILLOW_TRY(receive_line(fd));
      if (!line.starts_with("put "))
        return fail(Code::internal, "the copying process ended early");
      *digest = BILLOW_TRY(
          put(fd,
              static_cast<std::uint64_t>(BILLOW_TRY(parse_int(
                  line.substr(4), 1, static_cast<std::int64_t>(files::tree_list_bytes_max)))),
              head));
      return send_all(fd, "ok\n");
    });
    if (!went)
      *digest = pass(went.error());
    std::lock_guard lock(serving_mutex_);
    --copies_;
    loop_.post([done, digest] { done(std::move(*digest)); });
  });
}

Status FileService::input(int peer, TaskId task, const TaskRecord& record, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  BILLOW_TRY_VOID(receive(peer, text.data(), text.size()));
  const Json asked = BILLOW_TRY(parse_json(text));
  const auto get = [&](const char* name) {
    return std::string(asked[name].str_or(""));
  };
  if (record.variable(surroundings::files).empty())
    return fail(Code::invalid,
                "inputs need a synced working directory: submit the job with --sync");
  const std::string wish = get("url") + "\t" + get("path");
  const auto wishes = split(record.variable(inputs_variable), '\n');
  if (std::ranges::find(wishes, wish) == wishes.end())
    return fail(Code::forbidden, "this input was not submitted with the job",
                "name it with --input when you submit the job");
  const BroughtInputs brought(brought_file(options_.work_dir, task), wishes);
  if (std::lock_guard lock(brought_mutex_); brought.all())
    return fail(Code::forbidden, "the job has its inputs: they are fetched once, before it starts");
  const s3::Access access = s3::access_of([&](std::string_view name) {
    const bool key = name.find("KEY") != name.npos || name.ends_with("TOKEN");
    return key ? get(std::string(name).c_str()) : record.variable(name);
  });
  const auto done = bring(task, record, BILLOW_TRY(s3::parse_place(get("url"))),
                          BILLOW_TRY(plain_path(get("path"))), access);
  if (!done)
    return fail(done.error().code,
                done.error().hint.empty()
                    ? done.error().message
                    : fmt::format("{} ({})", done.error().message, done.error().hint));
  {
    std::lock_guard lock(brought_mutex_);
    BILLOW_TRY_VOID(brought.add(wish));
  }
  return send_all(peer,
                  fmt::format("ok {} {} {}\n", done->files, done->bytes, done->fetched_bytes));
}

// A job without a network has this socket too. So the agent connects only to addresses that the job
// itself may reach, sends only the credentials of the order, and its sockets belong to the job's
// user: services on this machine that ask who calls are not told that it is root.
Result<ObjectCache::Brought> FileService::bring(TaskId task,
                                                const TaskRecord& record,
                                                const s3::Place& place,
                                                const std::string& path,
                                                const s3::Access& access) {
  InputTerms terms = input_terms_in(record.meta);
  if (terms.noted && !are_submitted_keys(terms, access))
    return fail(Code::forbidden, "these credentials were not submitted with the job");
  if (!terms.noted)
    terms.node_network = !is_confined(record);
  s3::Caller caller;
  if (!terms.node_network)
    caller.permits = [this, allow = terms.allow](const net::RawAddress& address) {
      return options_.may_reach && options_.may_reach(allow, address);
    };
  if (record.identity && ::geteuid() == 0)
    caller.run = [uid = record.identity->uid](const std::function<void()>& call) {
      const process::FileRights rights(uid);
      if (rights.taken())
        call();
    };
  return objects_->bring({.place = place,
                          .access = access,
                          .root = work_path(options_.work_dir, task),
                          .path = path,
                          .owner = record.identity,
                          .own_copies = ::geteuid() != 0 && is_confined(record),
                          .caller = std::move(caller)});
}

void FileService::forget(TaskId task) {
  const std::string path = work_path(options_.work_dir, task);
  (void)workers_->submit([this, task, path]() -> std::function<void()> {
    if (!spares_->retire(task, path))
      if (const Status gone = remove_tree_of_user(path); !gone && file_exists(path))
        log_warn("{}", gone.error().message);
    const std::string temporary = options_.work_dir + "/" + private_tmp_name(task);
    if (const Status gone = remove_tree_of_user(temporary); !gone && file_exists(temporary))
      log_warn("{}", gone.error().message);
    ::unlink(brought_file(options_.work_dir, task).c_str());
    if (system_clock().steady() > trim_caches_) {
      spares_->trim();
      trim_project_caches(options_.cache_dir, options_.cache_bytes_max);
      trim_caches_ = system_clock().steady() + minutes(10);
    }
    return [] {
    };
  });
}

// The head may repeat the start of a task that this agent does not know, and that start makes the
// same directories again.
void FileService::forget_others(const std::vector<TaskId>& live) {
  spares_->adopt(live);
  std::vector<std::string> names;
  DIR* dir = ::opendir(options_.work_dir.c_str());
  if (!dir)
    return;
  while (const dirent* item = ::readdir(dir)) {
    const std::string name = item->d_name;
    // "7", "7.tmp" and "7.inputs" are of task 7.
    const auto number = parse_int(name.substr(0, name.find('.')), 1, INT64_MAX);
    const bool ended =
        number &&
        std::ranges::find(live, TaskId(static_cast<std::uint64_t>(*number))) == live.end();
    if (ended)
      names.push_back(name);
  }
  ::closedir(dir);
  removal_.remove_left(options_.work_dir);
  for (const std::string& name : names)
    if (const Status gone = removal_.remove(options_.work_dir + "/" + name); !gone)
      log_warn("{}", gone.error().message);
}

}  // namespace billow::agent
