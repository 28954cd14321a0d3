#include "agent/rooms.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "agent/helper.h"
#include "base/log.h"
#include "base/text.h"
#include "box/bundle.h"
#include "box/cdi.h"
#include "box/environment.h"
#include "box/podman.h"
#include "wire/codec.h"

namespace billow::agent {
namespace {

// Of the agent's own environment, what a helper needs to reach a registry.
std::vector<std::string> helper_env() {
  std::vector<std::string> env = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  for (const char* name : {"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"})
    if (const char* value = std::getenv(name)) env.push_back(fmt::format("{}={}", name, value));
  return env;
}

std::optional<Identity> identity_of(const UserRecord& user) {
  if (user.identity.uid == ::geteuid()) return std::nullopt;
  return user.identity;
}

Error error_of(const Json& error) {
  return {static_cast<Code>(error["code"].int_or(static_cast<int>(Code::unavailable))), std::string(error["message"].str_or("")), std::string(error["hint"].str_or(""))};
}

struct ImageWish {
  std::string image, store, key;
  UserRecord user;
  std::uint64_t bytes_max = 0;
};
Result<box::LocalImage> bring_image(const ImageWish& wish, const std::shared_ptr<std::atomic<bool>>& cancelled,
                                    const std::function<void(std::string)>& note) {
  Result<box::LocalImage> out = fail(Code::internal, "the image could not be brought, and nothing says why");
  const auto code = run_helper({.argv = {executable_dir() + "/billow", "box", "--store", wish.store, "--image", wish.image, "--key", wish.key, "--limit", std::to_string(wish.bytes_max)}, .env = helper_env(), .identity = identity_of(wish.user),
                                .line = [&](std::string_view line) {
                                  const auto said = parse_json(line);
                                  if (!said) return;
                                  if (const auto* text = said->find("note")) note(std::string(text->str_or("")));
                                  if (const auto* error = said->find("error")) out = pass(error_of(*error));
                                  if (const auto* found = said->find("image")) out = wire::from_json_text<box::LocalImage>(found->dump());
                                },
                                .cancelled = cancelled});
  if (!code) return pass(code.error());
  return out;
}

Status send_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(Code::unavailable, "whoever unpacks the environment has ended");
    data.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

std::string megabytes(std::uint64_t bytes) { return fmt::format("{}", bytes / 1'000'000); }

struct EnvironmentWish {
  std::string name, digest, store;
  UserRecord user;
  ContentSource source;
  std::uint64_t bytes_max = 0;
};

// Fetched by this thread's companion and unpacked by a process of the user's, each at the other's pace.
Result<box::Environment> bring_environment(const EnvironmentWish& wish, const std::shared_ptr<std::atomic<bool>>& cancelled, const std::function<void(std::string)>& note) {
  if (auto here = box::find_environment(wish.store, wish.digest)) return here;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno("socketpair", errno);
  Fd ours(ends[0]), theirs(ends[1]);
  Status fetched;
  std::uint64_t bytes = 0;
  std::thread companion([&] {
    note(fmt::format("fetching environment {}", wish.name));
    SteadyTime said = system_clock().steady();
    fetched = fetch_content(wish.source, wish.digest, {
        .list = [&](std::string_view list) {
          std::string head;
          for (int i = 0; i < 8; ++i) head += static_cast<char>(list.size() >> (8 * i));
          return send_all(ours.get(), head + std::string(list));
        },
        .piece = [&](std::string_view piece) { return send_all(ours.get(), piece); },
        .progress = [&](std::uint64_t done, std::uint64_t total) {
          bytes = done;
          if (const SteadyTime now = system_clock().steady(); now - said > milliseconds(500)) {
            said = now;
            note(fmt::format("fetching environment {}: {} of {} MB", wish.name, megabytes(done), megabytes(total)));
          }
        },
        .cancelled = [&] { return cancelled->load(); }});
    ::shutdown(ours.get(), SHUT_WR);
  });
  Result<box::Environment> out = fail(Code::internal, "the environment could not be unpacked, and nothing says why");
  const auto code = run_helper({.argv = {executable_dir() + "/billow", "box", "--store", wish.store, "--environment", wish.digest, "--limit", std::to_string(wish.bytes_max)},
                                .env = helper_env(), .identity = identity_of(wish.user), .input = theirs.get(),
                                .line = [&](std::string_view line) {
                                  const auto said = parse_json(line);
                                  if (!said) return;
                                  if (const auto* error = said->find("error")) out = pass(error_of(*error));
                                  if (const auto* found = said->find("environment")) out = wire::from_json_text<box::Environment>(found->dump());
                                },
                                .cancelled = cancelled});
  theirs.reset();   // or the companion would wait for a reader that is gone
  ::shutdown(ours.get(), SHUT_RDWR);
  companion.join();
  if (!fetched && fetched.error().code != Code::unavailable) return pass(fetched.error());   // the cause of the other's trouble
  if (!code) return pass(code.error());
  if (!out && !fetched) return pass(fetched.error());
  if (out) log_info("environment {} ({}) is here: {} MB fetched, {} MB unpacked", wish.name, wish.digest.substr(0, 12), megabytes(bytes), megabytes(static_cast<std::uint64_t>(out->bytes)));
  return out;
}

Rooms::Room environment_room(box::Plan plan, const box::Environment& env, const std::string& digest) {
  plan.uses = digest;
  const std::string directory = box::environment_dir(plan.store, digest);
  plan.root = env.place == "/";
  if (plan.root) {
    plan.layers_dir = directory;
    plan.layers = {"tree"};
    plan.config.entrypoint = env.command;
    plan.config.directory = env.directory;
    for (const auto& [name, value] : env.variables) plan.config.env.push_back(name + "=" + value);
  } else {
    plan.overlays.push_back({directory + "/tree", env.place});
  }
  return {std::move(plan), "", env};
}

// What an environment brings beside its files: its programs first, and its variables where the job has none of that name.
void add_environment(const box::Environment& environment, std::vector<std::string>& env) {
  std::string programs;
  for (const std::string& p : environment.programs) programs += environment.place + (p.empty() ? "" : "/") + p + ":";
  for (std::string& entry : env)
    if (entry.starts_with("PATH=")) entry.insert(5, programs);
  for (const auto& [name, value] : environment.variables)
    if (std::none_of(env.begin(), env.end(), [&](const std::string& e) { return e.starts_with(name + "="); })) env.push_back(name + "=" + value);
}

// A file of the machine that the job's variables name, seen inside at the same place: the shim, the vault's socket, simulated devices.
void add_named_files(const std::vector<std::string>& env, box::Plan& plan) {
  const auto add = [&](std::string_view path) {
    if (!path.starts_with('/') || std::any_of(plan.mounts.begin(), plan.mounts.end(), [&](const box::Mount& m) { return m.target == path; })) return;
    plan.mounts.push_back({.source = std::string(path), .target = std::string(path), .read_only = false, .optional = true});
  };
  for (const std::string& entry : env) {
    const auto equals = entry.find('=');
    const std::string_view name = std::string_view(entry).substr(0, equals), value = std::string_view(entry).substr(equals + 1);
    if (name == "LD_PRELOAD")
      for (const std::string& path : split(value, ':')) add(path);
    else if (name == "BILLOW_VAULT_SOCKET" || name == "BILLOW_HOSTFILE" || name == "BILLOW_CUDA" || name == "BILLOW_NVML" || name == "BILLOW_SIM_CUDA_STATE" || name == "BILLOW_CHECKPOINT_DIR" || name == "BILLOW_CACHE" || name == "BILLOW_CHECKPOINT")
      add(value);
  }
}

}  // namespace

Rooms::Rooms(net::Loop& loop, Options options, Callbacks callbacks)
    : loop_(loop), options_(std::move(options)), callbacks_(std::move(callbacks)), cdi_(box::make_cdi(options_.gpus, box::find_driver_files())),
      workers_(std::make_unique<net::Workers>(loop, net::Workers::Options{.threads = 4, .queue_max = 4096})) {
  if (options_.cdi_file.empty() || options_.gpus.empty()) return;
  if (const Status written = write_file_atomic(options_.cdi_file, cdi_.dump_pretty() + "\n", 0644); !written) log_warn("{}", written.error().message);
}

Rooms::~Rooms() {
  for (const auto& [task, cancelled] : preparing_) *cancelled = true;   // or the workers would wait for what they bring
  workers_.reset();
}

bool Rooms::needed(const wire::agent_v1::Start& start) { return !start.surroundings.image.empty() || !start.surroundings.environment_digest.empty(); }

std::string Rooms::key_of(TaskId task) const { return fmt::format("{}-{}", options_.owner, task.value); }

Result<std::string> Rooms::store_of(const UserRecord& user) {
  BILLOW_TRY_VOID(make_directories(options_.directory, 0711));
  // In a directory where everybody may write: somebody else may have been there first.
  for (const std::string& path : {options_.directory.substr(0, options_.directory.rfind('/')), options_.directory}) {
    struct stat made {};
    if (::lstat(path.c_str(), &made) != 0) return fail_errno(path, errno);
    if (!S_ISDIR(made.st_mode) || made.st_uid != ::geteuid() || (made.st_mode & 022)) return fail(Code::conflict, fmt::format("{} is not this agent's own", path), "remove it, or find out who made it");
  }
  if (!held_) {
    held_ = Fd(::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (held_) (void)::flock(held_.get(), LOCK_SH | LOCK_NB);
  }
  const std::string store = fmt::format("{}/{}", options_.directory, user.identity.uid);
  if (::mkdir(store.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(store, errno);
  struct stat info {};
  if (::lstat(store.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return fail(Code::conflict, store + " is not a directory");
  if (::geteuid() == 0 && info.st_uid != user.identity.uid && ::lchown(store.c_str(), user.identity.uid, user.identity.gid) != 0) return fail_errno(store, errno);
  return store;
}

void Rooms::prepare(const wire::agent_v1::Start& start, const UserRecord& user, Done done) {
  const TaskId task = start.task;
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  preparing_[task] = cancelled;
  const auto finish = [this, task, cancelled, done](Result<Room> room) {
    if (*cancelled) return;
    preparing_.erase(task);
    callbacks_.note(task, "");
    done(std::move(room));
  };
  const auto store = store_of(user);
  if (!store) return loop_.post([finish, error = store.error()] { finish(pass(error)); });
  const auto note = [this, task, cancelled](std::string text) {
    loop_.post([this, task, cancelled, text = std::move(text)] { if (!*cancelled) callbacks_.note(task, text); });
  };
  box::Plan plan;
  plan.key = key_of(task);
  plan.store = *store;
  switch (start.surroundings.network) {
    case RoomNetwork::host: break;
    case RoomNetwork::none: plan.no_network = true;
  }
  const Surroundings& asked = start.surroundings;
  EnvironmentWish wish{asked.environment, asked.environment_digest, *store, user, options_.head ? options_.head() : ContentSource{}, options_.environment_bytes_max};
  const Status queued = workers_->submit(
      [plan, image = ImageWish{asked.image, *store, plan.key, user, options_.image_bytes_max}, wish, cancelled, note, task]() mutable -> Result<Room> {
        if (image.image.empty()) return environment_room(std::move(plan), BILLOW_TRY(bring_environment(wish, cancelled, note)), wish.digest);
        const box::LocalImage found = BILLOW_TRY(bring_image(image, cancelled, note));
        plan.root = true;
        plan.uses = found.id;
        plan.layers_dir = box::layers_dir(plan.store);
        plan.layers = found.layers;
        plan.config = found.config;
        // So that the job can be run again in this very image. Its own work does not wait on it.
        if (const Status told = wish.source.token_file.empty() || found.digest.empty() ? Status{} : tell_image(wish.source, task.value, found.digest); !told)
          log_warn("task {}: the head does not know its image: {}", task.value, told.error().message);
        return Room{std::move(plan), found.digest, {}};
      },
      finish);
  if (!queued) loop_.post([finish, error = queued.error()] { finish(pass(error)); });
}

void Rooms::cancel(TaskId task) {
  const auto found = preparing_.find(task);
  if (found == preparing_.end()) return;
  *found->second = true;
  preparing_.erase(found);
}

Status Rooms::furnish(const Room& room, const wire::agent_v1::Start& start, const std::vector<std::uint32_t>& granted, const std::vector<SecretFiles::Written>& secrets, TaskSpec& spec) const {
  box::Plan plan = room.plan;
  plan.terminal = start.pty;
  if (!plan.root) add_environment(room.environment, spec.env);
  if (plan.root) {
    for (const BoundVolume& volume : start.volumes) plan.mounts.push_back({.source = volume.source, .target = volume.path, .read_only = volume.read_only});
    std::vector<std::string> names;
    for (const std::uint32_t card : granted) names.push_back(std::to_string(card));
    BILLOW_TRY_VOID(box::add_devices(cdi_, names, plan));
    add_named_files(spec.env, plan);
    for (const SecretFiles::Written& secret : secrets)
      plan.mounts.push_back({.source = secret.file, .target = secret.wanted.empty() ? SecretFiles::usual_place(secret.name) : secret.wanted, .read_only = true});
    if (box::may_show(spec.cwd)) {
      plan.mounts.push_back({.source = spec.cwd, .target = spec.cwd});
      plan.directory = spec.cwd;
    }
  }
  spec.env.push_back(fmt::format("{}={}", box::plan_variable, wire::to_json_text(plan)));
  return {};
}

void Rooms::remove_scratch(const std::function<bool(const std::string& key)>& which) {
  (void)workers_->submit([directory = options_.directory, which]() -> int {
    const auto each = [](const std::string& path, const std::function<void(const std::string& name)>& fn) {
      DIR* dir = ::opendir(path.c_str());
      if (!dir) return;
      std::vector<std::string> names;
      while (const dirent* item = ::readdir(dir))
        if (item->d_name[0] != '.') names.emplace_back(item->d_name);
      ::closedir(dir);
      for (const std::string& name : names) fn(name);
    };
    each(directory, [&](const std::string& uid) {
      const std::string scratch = fmt::format("{}/{}/scratch", directory, uid);
      each(scratch, [&](const std::string& key) {
        if (!which(key)) return;
        if (const Status gone = remove_tree(scratch + "/" + key); !gone && file_exists(scratch + "/" + key)) log_warn("{}", gone.error().message);
      });
    });
    return 0;
  }, [](int) {});
}

void Rooms::ended(TaskId task) {
  if (!held_) return;   // no room was ever made
  const std::string key = key_of(task);
  remove_scratch([key](const std::string& name) { return name == key || name.starts_with(key + "."); });
}

void Rooms::forget_others(const std::vector<TaskId>& live) {
  if (!file_exists(options_.directory)) return;
  std::vector<std::string> keys;
  for (const TaskId task : live) keys.push_back(key_of(task));
  remove_scratch([keys, mine = options_.owner + "-"](const std::string& name) {
    const std::string key = name.substr(0, name.find('.'));
    return name.starts_with(mine) && std::find(keys.begin(), keys.end(), key) == keys.end();
  });
}

}  // namespace billow::agent
