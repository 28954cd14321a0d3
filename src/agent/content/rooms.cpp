#include "agent/content/rooms.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "agent/isolate/helper.h"
#include "base/log.h"
#include "base/text.h"
#include "container/bundle.h"
#include "container/cdi.h"
#include "container/environment.h"
#include "container/podman.h"
#include "container/store.h"
#include "core/wire/codec.h"

namespace billow::agent {
namespace {

constexpr Duration busy_retry = milliseconds(500);
constexpr Duration measure_every = seconds(30);

// Of the agent's own environment, what a helper needs to reach a registry.
std::vector<std::string> helper_env() {
  std::vector<std::string> env = {
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  for (const char* name : {"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                           "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"})
    if (const char* value = std::getenv(name))
      env.push_back(fmt::format("{}={}", name, value));
  return env;
}

std::optional<Identity> identity_of(const UserRecord& user) {
  if (user.identity.uid == ::geteuid())
    return std::nullopt;
  return user.identity;
}

Error error_of(const Json& error) {
  return {static_cast<Code>(error["code"].int_or(static_cast<int>(Code::unavailable))),
          std::string(error["message"].str_or("")), std::string(error["hint"].str_or(""))};
}

// How long a helper may take, and what it was said to wait for last, for when it takes longer.
struct Patience {
  Duration quiet_max;
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::function<void(std::string)> note;
};

// What a helper of ours says in the end: the thing, that somebody else is at it (none), or an
// error.
template <class T>
struct Said {
  const char* name;  // of the thing in its answer
  Result<std::optional<T>> out =
      fail(Code::internal, "it could not be brought, and nothing says why");
  std::string last_note;
  void take(std::string_view line, const Patience& patience) {
    const auto said = parse_json(line);
    if (!said)
      return;
    if (const auto* text = said->find("note"))
      patience.note(last_note = std::string(text->str_or("")));
    if (const auto* error = said->find("error"))
      out = pass(error_of(*error));
    if (said->find("busy"))
      out = std::optional<T>();
    if (const auto* found = said->find(name)) {
      auto thing = wire::from_json_text<T>(found->dump());
      if (thing)
        out = std::move(*thing);
      else
        out = pass(thing.error());
    }
  }
};

Helper helper_of(std::vector<std::string> args,
                 const UserRecord& user,
                 const Patience& patience,
                 std::string what) {
  Helper out;
  out.argv = std::move(args);
  out.argv.insert(out.argv.begin(), {executable_dir() + "/billow", "box"});
  out.env = helper_env();
  out.identity = identity_of(user);
  out.cancelled = patience.cancelled;
  out.what = std::move(what);
  out.quiet_max = patience.quiet_max;
  out.within = limits::room_brought_within;
  return out;
}

struct ImageWish {
  std::string image, store, key;
  UserRecord user;
  std::uint64_t bytes_max = 0;
};
Result<std::optional<container::LocalImage>> bring_image(const ImageWish& wish,
                                                         const Patience& patience) {
  Said<container::LocalImage> said{.name = "image"};
  Helper helper = helper_of({"--store", wish.store, "--image", wish.image, "--key", wish.key,
                             "--limit", std::to_string(wish.bytes_max)},
                            wish.user, patience, "image " + wish.image);
  helper.line = [&](std::string_view line) {
    said.take(line, patience);
  };
  if (const auto code = run_helper(helper); !code) {
    if (code.error().code != Code::timed_out)
      return pass(code.error());
    return fail(
        Code::timed_out,
        code.error().message +
            (said.last_note.empty() ? "" : fmt::format("; the last of it: {}", said.last_note)),
        "does the registry answer this node, and fast enough?");
  }
  return said.out;
}

Status send_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return fail(Code::unavailable, "whoever unpacks the environment has ended");
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{}", bytes / 1'000'000);
}

struct EnvironmentWish {
  std::string name, digest, store, key;
  UserRecord user;
  ContentSource source;
  std::uint64_t bytes_max = 0;
};

// Fetched by this thread's companion and unpacked by a process of the user's, each at the other's
// pace.
Result<std::optional<container::Environment>> bring_environment(const EnvironmentWish& wish,
                                                                const Patience& patience) {
  const std::vector<std::string> words = {
      "--store", wish.store, "--environment", wish.digest,
      "--key",   wish.key,   "--limit",       std::to_string(wish.bytes_max)};
  if (container::find_environment(wish.store, wish.digest)) {
    Said<container::Environment> said{.name = "environment"};
    Helper hold = helper_of(words, wish.user, patience, "environment " + wish.name);
    hold.argv.emplace_back("--hold");
    hold.line = [&](std::string_view line) {
      said.take(line, patience);
    };
    BILLOW_TRY(run_helper(hold));
    if (said.out || said.out.error().code != Code::not_found)
      return said.out;  // else it has just gone
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair", errno);
  Fd ours(ends[0]), theirs(ends[1]);
  Status fetched;
  std::atomic<std::uint64_t> bytes = 0;
  std::thread companion([&] {
    patience.note(fmt::format("fetching environment {}", wish.name));
    SteadyTime said = system_clock().steady();
    fetched = fetch_content(
        wish.source, wish.digest,
        {.list =
             [&](std::string_view list) {
               std::string head;
               for (int i = 0; i < 8; ++i)
                 head += static_cast<char>(list.size() >> (8 * i));
               return send_all(ours.get(), head + std::string(list));
             },
         .piece = [&](std::string_view piece) { return send_all(ours.get(), piece); },
         .progress =
             [&](std::uint64_t done, std::uint64_t total) {
               bytes = done;
               if (const SteadyTime now = system_clock().steady(); now - said > milliseconds(500)) {
                 said = now;
                 patience.note(fmt::format("fetching environment {}: {} of {} MB", wish.name,
                                           megabytes(done), megabytes(total)));
               }
             },
         .cancelled =
             [&] {
               return patience.cancelled->load();
             }});
    ::shutdown(ours.get(), SHUT_WR);
  });
  Said<container::Environment> said{.name = "environment"};
  Helper helper = helper_of(words, wish.user, patience, "environment " + wish.name);
  helper.input = theirs.get();
  helper.line = [&](std::string_view line) {
    said.take(line, patience);
  };
  helper.progress = [&] {
    return bytes.load();
  };
  const auto code = run_helper(helper);
  theirs.reset();  // or the companion would wait for a reader that is gone
  ::shutdown(ours.get(), SHUT_RDWR);
  companion.join();
  if (!code && code.error().code == Code::timed_out)
    return fail(Code::timed_out,
                fmt::format("{}; {} MB of it had come", code.error().message, megabytes(bytes)),
                "does the head answer this node, and fast enough?");
  if (!fetched && fetched.error().code != Code::unavailable)
    return pass(fetched.error());  // the cause of the other's trouble
  if (!code)
    return pass(code.error());
  if (!said.out && !fetched)
    return pass(fetched.error());
  if (const auto& out = said.out; out && *out)
    log_info("environment {} ({}) is here: {} MB fetched, {} MB unpacked", wish.name,
             wish.digest.substr(0, 12), megabytes(bytes),
             megabytes(static_cast<std::uint64_t>((*out)->bytes)));
  return said.out;
}

Rooms::Room environment_room(container::Plan plan,
                             const container::Environment& env,
                             const std::string& digest) {
  plan.uses = digest;
  const std::string directory = container::environment_dir(plan.store, digest);
  plan.root = env.place == "/";
  if (plan.root) {
    plan.layers_dir = directory;
    plan.layers = {"tree"};
    plan.config.entrypoint = env.command;
    plan.config.directory = env.directory;
    for (const auto& [name, value] : env.variables)
      plan.config.env.push_back(name + "=" + value);
  } else {
    plan.overlays.push_back({directory + "/tree", env.place});
  }
  return {std::move(plan), "", env};
}

// What an environment brings beside its files: its programs first, and its variables where the job
// has none of that name.
void add_environment(const container::Environment& environment, std::vector<std::string>& env) {
  std::string programs;
  for (const std::string& p : environment.programs)
    programs += environment.place + (p.empty() ? "" : "/") + p + ":";
  for (std::string& entry : env)
    if (entry.starts_with("PATH="))
      entry.insert(5, programs);
  for (const auto& [name, value] : environment.variables)
    if (std::none_of(env.begin(), env.end(),
                     [&](const std::string& e) { return e.starts_with(name + "="); }))
      env.push_back(name + "=" + value);
}

// A file of the machine that the job's variables name, seen inside at the same place: the shim, the
// vault's socket, simulated devices.
void add_named_files(const std::vector<std::string>& env, container::Plan& plan) {
  const auto add = [&](std::string_view path) {
    if (!path.starts_with('/') ||
        std::any_of(plan.mounts.begin(), plan.mounts.end(),
                    [&](const container::Mount& m) { return m.target == path; }))
      return;
    plan.mounts.push_back({.source = std::string(path),
                           .target = std::string(path),
                           .read_only = false,
                           .optional = true});
  };
  for (const std::string& entry : env) {
    const auto equals = entry.find('=');
    const std::string_view name = std::string_view(entry).substr(0, equals),
                           value = std::string_view(entry).substr(equals + 1);
    if (name == "LD_PRELOAD")
      for (const std::string& path : split(value, ':'))
        add(path);
    else if (name == "BILLOW_VAULT_SOCKET" || name == "BILLOW_HOSTFILE" || name == "BILLOW_CUDA" ||
             name == "BILLOW_NVML" || name == "BILLOW_SIM_CUDA_STATE" ||
             name == "BILLOW_CHECKPOINT_DIR" || name == "BILLOW_CACHE" ||
             name == "BILLOW_CHECKPOINT")
      add(value);
  }
}

}  // namespace

Rooms::Rooms(net::Loop& loop, Options options, Callbacks callbacks)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      cdi_(container::make_cdi(options_.gpus, container::find_driver_files())),
      cleaner_(std::make_unique<net::Workers>(
          loop, net::Workers::Options{.threads = 1, .queue_max = 1 << 16})),
      workers_(std::make_unique<net::Workers>(
          loop,
          net::Workers::Options{.threads = limits::rooms_brought_max,
                                .queue_max = limits::rooms_brought_max})),
      measurer_(std::make_unique<net::Workers>(
          loop, net::Workers::Options{.threads = 1, .queue_max = 1})) {
  if (options_.cdi_file.empty() || options_.gpus.empty())
    return;
  if (const Status written = write_file_atomic(options_.cdi_file, cdi_.dump_pretty() + "\n", 0644);
      !written)
    log_warn("{}", written.error().message);
}

Rooms::~Rooms() {
  for (const auto& [task, wanted] : wanted_)
    *wanted.cancelled = true;  // or the workers would wait for what they bring
  ending_ = true;
  workers_.reset();
  cleaner_.reset();
  measurer_.reset();
}

bool Rooms::needed(const wire::agent_v1::Start& start) {
  return !start.surroundings.image.empty() || !start.surroundings.environment_digest.empty();
}

std::string Rooms::key_of(TaskId task) const {
  return fmt::format("{}-{}", options_.owner, task.value);
}

Result<std::string> Rooms::store_of(const UserRecord& user) {
  BILLOW_TRY_VOID(make_directories(options_.directory, 0711));
  // In a directory where everybody may write: somebody else may have been there first.
  for (const std::string& path :
       {options_.directory.substr(0, options_.directory.rfind('/')), options_.directory}) {
    struct stat made {};
    if (::lstat(path.c_str(), &made) != 0)
      return fail_errno(path, errno);
    if (!S_ISDIR(made.st_mode) || made.st_uid != ::geteuid() || (made.st_mode & 022))
      return fail(Code::conflict, fmt::format("{} is not this agent's own", path),
                  "remove it, or find out who made it");
  }
  if (!held_) {
    held_ = Fd(::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (held_)
      (void)::flock(held_.get(), LOCK_SH | LOCK_NB);
  }
  const std::string store = fmt::format("{}/{}", options_.directory, user.identity.uid);
  if (::mkdir(store.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno(store, errno);
  struct stat info {};
  if (::lstat(store.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return fail(Code::conflict, store + " is not a directory");
  if (::geteuid() == 0 && info.st_uid != user.identity.uid &&
      ::lchown(store.c_str(), user.identity.uid, user.identity.gid) != 0)
    return fail_errno(store, errno);
  return store;
}

void Rooms::prepare(const wire::agent_v1::Start& start, const UserRecord& user, Done done) {
  const TaskId task = start.task;
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  const Surroundings& asked = start.surroundings;
  Wanted& wanted =
      wanted_[task] = {.item = {task, user.identity.uid,
                                asked.image.empty() ? asked.environment_digest : asked.image},
                       .cancelled = cancelled,
                       .bring = {},
                       .done = std::move(done),
                       .begun = false,
                       .busy_since = {},
                       .again = {}};
  const auto store = store_of(user);
  if (!store)
    return loop_.post([this, task, cancelled, error = store.error()] {
      if (!*cancelled)
        finish(task, pass(error));
    });
  const auto note = [this, task, cancelled](std::string text) {
    loop_.post([this, task, cancelled, text = std::move(text)] {
      if (!*cancelled)
        callbacks_.note(task, text);
    });
  };
  container::Plan plan;
  plan.key = key_of(task);
  plan.store = *store;
  switch (start.surroundings.network) {
    case RoomNetwork::host:
      break;
    case RoomNetwork::none:
      plan.no_network = true;
  }
  const Patience patience{options_.quiet_max, cancelled, note};
  const EnvironmentWish environment{asked.environment,
                                    asked.environment_digest,
                                    *store,
                                    plan.key,
                                    user,
                                    options_.head ? options_.head() : ContentSource{},
                                    options_.environment_bytes_max};
  wanted.bring = [plan,
                  image = ImageWish{asked.image, *store, plan.key, user, options_.image_bytes_max},
                  environment, patience, task]() mutable -> Brought {
    if (image.image.empty()) {
      const auto found = BILLOW_TRY(bring_environment(environment, patience));
      if (!found)
        return std::nullopt;
      return environment_room(plan, *found, environment.digest);
    }
    const auto found = BILLOW_TRY(bring_image(image, patience));
    if (!found)
      return std::nullopt;
    plan.root = true;
    plan.uses = found->id;
    plan.layers_dir = container::layers_dir(plan.store);
    plan.layers = found->layers;
    plan.config = found->config;
    // So that the job can be run again in this very image. Its own work does not wait on it.
    if (const Status told = environment.source.token_file.empty() || found->digest.empty()
                                ? Status{}
                                : tell_image(environment.source, task.value, found->digest);
        !told)
      log_warn("task {}: the head does not know its image: {}", task.value, told.error().message);
    return Room{plan, found->digest, {}};
  };
  if (const Status queued = queue_.add(wanted.item); !queued)
    return loop_.post([this, task, cancelled, error = queued.error()] {
      if (!*cancelled)
        finish(task, pass(error));
    });
  begin_next();
  if (const auto waiting = wanted_.find(task); waiting != wanted_.end() && !waiting->second.begun)
    note("waiting for its turn to have its image or environment brought to this node");
}

void Rooms::begin_next() {
  while (const auto item = queue_.next()) {
    const auto wanted = wanted_.find(item->task);
    if (wanted == wanted_.end()) {  // it was given up
      queue_.ended(*item, false);
      continue;
    }
    wanted->second.begun = true;
    const auto cancelled = wanted->second.cancelled;
    const Status queued = workers_->submit(
        [bring = wanted->second.bring, cancelled]() -> Brought {
          return *cancelled ? Brought(fail(Code::unavailable, "given up")) : bring();
        },
        [this, item = *item, cancelled](Brought room) {
          brought(item, cancelled, std::move(room));
        });
    if (!queued)
      loop_.post([this, item = *item, cancelled, error = queued.error()] {
        brought(item, cancelled, pass(error));
      });
  }
}

void Rooms::brought(const FairQueue::Item& item,
                    const std::shared_ptr<std::atomic<bool>>& cancelled,
                    Brought room) {
  queue_.ended(item, room && *room);
  changed_ = true;
  if (*cancelled) {
    ended(item.task);  // what it left since its task was told to end
  } else {
    Wanted& wanted = wanted_.at(item.task);
    const SteadyTime now = system_clock().steady();
    if (!room)
      finish(item.task, pass(room.error()));
    else if (*room)
      finish(item.task, std::move(**room));
    else if (wanted.busy_since != SteadyTime{} && now - wanted.busy_since > options_.quiet_max)
      finish(item.task,
             fail(Code::timed_out,
                  fmt::format("{} was given up: another process holds what is kept for its user on "
                              "this node, for {} by now",
                              item.what, format_duration(now - wanted.busy_since)),
                  fmt::format("see who has files open in {}/{}", options_.directory, item.user)));
    else {
      // Another process of the user's is at it. Its place is free meanwhile.
      if (wanted.busy_since == SteadyTime{}) {
        wanted.busy_since = now;
        callbacks_.note(item.task, "waiting for another image to be brought");
      }
      wanted.again = loop_.after(busy_retry, [this, item, cancelled] {
        loop_.post([this, item, cancelled] {
          if (*cancelled)
            return;
          if (const Status queued = queue_.add(item); !queued)
            return finish(item.task, pass(queued.error()));
          begin_next();
        });
      });
    }
  }
  begin_next();
}

void Rooms::finish(TaskId task, Result<Room> room) {
  const auto found = wanted_.find(task);
  if (found == wanted_.end())
    return;
  const Done done = std::move(found->second.done);
  wanted_.erase(found);
  callbacks_.note(task, "");
  done(std::move(room));
}

void Rooms::cancel(TaskId task) {
  const auto found = wanted_.find(task);
  if (found == wanted_.end())
    return;
  *found->second.cancelled = true;
  wanted_.erase(found);
  queue_.remove(task);
}

Status Rooms::furnish(const Room& room,
                      const wire::agent_v1::Start& start,
                      const std::vector<std::uint32_t>& granted,
                      const std::vector<SecretFiles::Written>& secrets,
                      TaskSpec& spec) const {
  container::Plan plan = room.plan;
  plan.terminal = start.pty;
  if (!plan.root)
    add_environment(room.environment, spec.env);
  if (plan.root) {
    for (const BoundVolume& volume : start.volumes)
      plan.mounts.push_back(
          {.source = volume.source, .target = volume.path, .read_only = volume.read_only});
    std::vector<std::string> names;
    for (const std::uint32_t card : granted)
      names.push_back(std::to_string(card));
    BILLOW_TRY_VOID(container::add_devices(cdi_, names, plan));
    add_named_files(spec.env, plan);
    for (const SecretFiles::Written& secret : secrets)
      plan.mounts.push_back(
          {.source = secret.file,
           .target = secret.wanted.empty() ? SecretFiles::usual_place(secret.name) : secret.wanted,
           .read_only = true});
    if (container::may_show(spec.cwd)) {
      plan.mounts.push_back({.source = spec.cwd, .target = spec.cwd});
      plan.directory = spec.cwd;
    }
  }
  spec.env.push_back(fmt::format("{}={}", container::plan_variable, wire::to_json_text(plan)));
  return {};
}

void Rooms::remove_scratch(const std::function<bool(const std::string& key)>& which) {
  (void)cleaner_->submit(
      [directory = options_.directory, which]() -> int {
        for (const std::string& uid : container::names_in(directory)) {
          const std::string scratch = fmt::format("{}/{}/scratch", directory, uid);
          for (const std::string& key : container::names_in(scratch)) {
            if (!which(key))
              continue;
            if (const Status gone = remove_tree(scratch + "/" + key);
                !gone && file_exists(scratch + "/" + key))
              log_warn("{}", gone.error().message);
          }
        }
        return 0;
      },
      [](int) {});
}

std::int64_t Rooms::image_bytes() {
  const SteadyTime now = system_clock().steady();
  if (measuring_ || !changed_ ||
      (measured_at_ != SteadyTime{} && now - measured_at_ < measure_every))
    return image_bytes_;
  measured_at_ = now;
  measuring_ = measurer_
                   ->submit(
                       [directory = options_.directory, stop = &ending_]() -> std::int64_t {
                         std::uint64_t bytes = 0;
                         for (const std::string& uid : container::names_in(directory))
                           bytes += container::disk_bytes(
                               fmt::format("{}/{}/storage", directory, uid), stop);
                         return static_cast<std::int64_t>(bytes);
                       },
                       [this](std::int64_t bytes) {
                         image_bytes_ = bytes;
                         measuring_ = false;
                       })
                   .has_value();
  changed_ = !measuring_;
  return image_bytes_;
}

void Rooms::ended(TaskId task) {
  if (!held_)
    return;  // no room was ever made
  const std::string key = key_of(task);
  remove_scratch(
      [key](const std::string& name) { return name == key || name.starts_with(key + "."); });
}

void Rooms::forget_others(const std::vector<TaskId>& live) {
  if (!file_exists(options_.directory))
    return;
  std::vector<std::string> keys;
  for (const TaskId task : live)
    keys.push_back(key_of(task));
  remove_scratch([keys, mine = options_.owner + "-"](const std::string& name) {
    const std::string key = name.substr(0, name.find('.'));
    return name.starts_with(mine) && std::find(keys.begin(), keys.end(), key) == keys.end();
  });
}

}  // namespace billow::agent
