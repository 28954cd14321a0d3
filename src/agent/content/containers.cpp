#include "agent/content/containers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "agent/content/container_fetch.h"
#include "agent/content/file_service.h"
#include "base/log.h"
#include "base/text.h"
#include "container/bundle.h"
#include "container/cdi.h"
#include "container/image_store.h"
#include "core/wire/codec.h"
#include "core/wire/confined.h"
#include "net/ask_keepalive.h"

namespace billow::agent {
namespace {

constexpr Duration busy_retry = milliseconds(500);
constexpr Duration measure_every = seconds(30);

Containers::Prepared prepare_environment(container::Plan plan,
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

// A confined job does not have the node's root, so its environment is mounted in another one. There
// it is read-only.
void show_in_node_root(container::Plan& plan) {
  for (const container::Overlay& overlay : plan.overlays)
    plan.mounts.push_back({.source = overlay.lower, .target = overlay.target, .read_only = true});
  plan.overlays.clear();
  plan.root = plan.node_root = true;
}

bool without_network(const wire::agent_v1::Start& start) {
  const ContainerNetwork network = start.surroundings.network;
  return network == ContainerNetwork::none ||
         (wire::strict_isolation(start) && !is_made_by_agent(network));
}

// Puts the environment's programs first in PATH and adds its variables unless the job sets them.
// Those of Billow itself come from the agent, never from an environment's content.
void add_environment(const container::Environment& environment, std::vector<std::string>& env) {
  std::string programs;
  for (const std::string& p : environment.programs)
    programs += environment.place + (p.empty() ? "" : "/") + p + ":";
  for (std::string& entry : env)
    if (entry.starts_with("PATH="))
      entry.insert(5, programs);
  for (const auto& [name, value] : environment.variables)
    if (!name.starts_with("BILLOW_") &&
        std::none_of(env.begin(), env.end(),
                     [&](const std::string& e) { return e.starts_with(name + "="); }))
      env.push_back(name + "=" + value);
}

// Mounts the node's files that the job's variables name at the same path: the shim, the GPU memory
// service's socket, simulated devices.
void add_named_files(const std::vector<std::string>& env,
                     const wire::agent_v1::Start& start,
                     container::Plan& plan) {
  // A confined job chooses none of the files of the node that are shown to it.
  const auto chosen_by_job = [&](std::string_view name, std::string_view path) {
    const auto asked = start.env.find(std::string(name));
    if (!plan.confined)
      return false;
    if (name.starts_with("BILLOW_CHECKPOINT") && !start.checkpoint_dir.empty())
      return true;
    if (asked == start.env.end())
      return false;
    const auto paths = split(asked->second, ':');
    return asked->second == path || std::ranges::find(paths, path) != paths.end();
  };
  std::string_view name;
  const auto add = [&](std::string_view path, bool read_only) {
    if (!path.starts_with('/') || chosen_by_job(name, path) ||
        std::any_of(plan.mounts.begin(), plan.mounts.end(),
                    [&](const container::Mount& m) { return m.target == path; }))
      return;
    plan.mounts.push_back({.source = std::string(path),
                           .target = std::string(path),
                           .read_only = read_only,
                           .optional = true});
  };
  for (const std::string& entry : env) {
    const auto equals = entry.find('=');
    name = std::string_view(entry).substr(0, equals);
    const std::string_view value = std::string_view(entry).substr(equals + 1);
    if (name == "LD_PRELOAD")
      for (const std::string& path : split(value, ':'))
        add(path, true);
    else if (name == "BILLOW_VAULT_SOCKET" || name == "BILLOW_HOSTFILE" || name == "BILLOW_CUDA" ||
             name == "BILLOW_NVML" || name == net::keepalive_variable ||
             (plan.node_root && name == files_socket_variable))
      add(value, true);  // our own files; a socket can be used through a read-only mount
    else if (name == "BILLOW_SIM_CUDA_STATE" || name == "BILLOW_CHECKPOINT_DIR" ||
             name == "BILLOW_CACHE" || name == "BILLOW_CHECKPOINT")
      add(value, false);
  }
}

}  // namespace

Containers::Containers(net::Loop& loop, Options options, Callbacks callbacks)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      cdi_(container::make_cdi(options_.gpus, container::find_driver_files())),
      cleaner_(std::make_unique<net::Workers>(
          loop, net::Workers::Options{.threads = 1, .queue_max = 1 << 16})),
      workers_(std::make_unique<net::Workers>(
          loop,
          net::Workers::Options{.threads = limits::containers_prepared_max,
                                .queue_max = limits::containers_prepared_max})),
      measurer_(std::make_unique<net::Workers>(
          loop, net::Workers::Options{.threads = 1, .queue_max = 1})) {
  if (options_.cdi_file.empty() || options_.gpus.empty())
    return;
  if (const Status written = write_file_atomic(options_.cdi_file, cdi_.dump_pretty() + "\n", 0644);
      !written)
    log_warn("{}", written.error().message);
}

Containers::~Containers() {
  for (const auto& [task, wanted] : wanted_)
    *wanted.cancelled = true;  // otherwise the workers would wait for their fetches
  ending_ = true;
  workers_.reset();
  cleaner_.reset();
  measurer_.reset();
}

bool Containers::needed(const wire::agent_v1::Start& start) {
  return !start.surroundings.image.empty() || !start.surroundings.environment_digest.empty();
}

bool Containers::works_together(const wire::agent_v1::Start& start) {
  return start.gang || start.procs > 1;
}

std::string Containers::key_of(TaskId task) const {
  return fmt::format("{}-{}", options_.owner, task.value);
}

Result<std::string> Containers::store_of(const UserRecord& user) {
  const auto slash = options_.directory.rfind('/');
  const OwnPlace work = BILLOW_TRY(OwnPlace::at(options_.directory.substr(0, slash)));
  const std::string name = options_.directory.substr(slash + 1);
  held_ = BILLOW_TRY(work.directory({.relative = name, .mode = 0711}));
  (void)::flock(held_.get(), LOCK_SH | LOCK_NB);
  const std::string relative = fmt::format("{}/{}", name, user.identity.uid);
  const Fd store =
      BILLOW_TRY(work.directory({.relative = relative, .mode = 0700, .owner = user.identity}));
  struct stat info {};
  if (::fstat(store.get(), &info) != 0 ||
      (::geteuid() == 0 && info.st_uid != user.identity.uid &&
       ::fchown(store.get(), user.identity.uid, user.identity.gid) != 0))
    return fail_errno(work.below(relative), errno);
  return work.below(relative);
}

Result<Containers::Prepared> Containers::prepare_confined(const wire::agent_v1::Start& start,
                                                          const UserRecord& user) {
  container::Plan plan;
  plan.key = key_of(start.task);
  plan.store = BILLOW_TRY(store_of(user));
  plan.no_network = without_network(start);
  plan.root = plan.node_root = true;
  return Prepared{std::move(plan), "", {}};
}

std::function<Containers::Fetched(const FetchPlace&)> Containers::make_fetch(
    const wire::agent_v1::Start& start,
    const UserRecord& user,
    const std::string& store,
    const ImageTerms& terms,
    std::shared_ptr<std::atomic<bool>> cancelled) {
  const TaskId task = start.task;
  const Surroundings& asked = start.surroundings;
  container::Plan plan;
  plan.key = key_of(task);
  plan.store = store;
  plan.no_network = without_network(start);
  FetchControl control{
      {}, options_.quiet_max, cancelled, [this, task, cancelled](std::string text) {
        note(task, cancelled, std::move(text));
      }};
  const ContentSource source = options_.head ? options_.head() : ContentSource{};
  if (asked.image.empty())
    return [plan, control, confined = !wire::confined_for(start).empty(),
            request = EnvironmentRequest{asked.environment, asked.environment_digest, store,
                                         plan.key, user, source, options_.environment_bytes_max}](
               const FetchPlace& place) mutable -> Fetched {
      control.cgroups = place.groups();
      const auto found = BILLOW_TRY(fetch_environment(request, control));
      if (!found)
        return std::nullopt;
      Prepared prepared = prepare_environment(plan, *found, request.digest);
      if (confined && !prepared.plan.root)
        show_in_node_root(prepared.plan);
      return prepared;
    };
  return
      [plan, control, task, source,
       request = ImageRequest{asked.image, store, plan.key, user, options_.image_bytes_max, terms,
                              start.registry_login}](const FetchPlace& place) mutable -> Fetched {
        control.cgroups = place.groups();
        const auto found = BILLOW_TRY(fetch_image(request, control));
        if (!found)
          return std::nullopt;
        plan.root = true;
        plan.uses = found->id;
        plan.layers_dir = container::layers_dir(plan.store);
        plan.layers = found->layers;
        plan.config = found->config;
        // The head records the digest so that a restarted job uses exactly this image. The task
        // starts even if that fails.
        if (source.credential && !found->digest.empty())
          if (const Status told = tell_image(source, task.value, found->digest); !told)
            log_warn("task {}: could not report its image digest to the head: {}", task.value,
                     told.error().message);
        return Prepared{plan, found->digest, {}};
      };
}

void Containers::note(TaskId task,
                      const std::shared_ptr<std::atomic<bool>>& cancelled,
                      std::string text) {
  loop_.post([this, task, cancelled, text = std::move(text)] {
    if (!*cancelled)
      callbacks_.note(task, text);
  });
}

void Containers::finish_later(TaskId task,
                              const std::shared_ptr<std::atomic<bool>>& cancelled,
                              Error error) {
  loop_.post([this, task, cancelled, error = std::move(error)] {
    if (!*cancelled)
      finish(task, pass(error));
  });
}

void Containers::prepare(const wire::agent_v1::Start& start, const UserRecord& user, Done done) {
  const TaskId task = start.task;
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  const Surroundings& asked = start.surroundings;
  Wanted& wanted =
      wanted_[task] = {.item = {task, user.identity.uid,
                                asked.image.empty() ? asked.environment_digest : asked.image},
                       .cancelled = cancelled,
                       .fetch = {},
                       .done = std::move(done),
                       .begun = false,
                       .busy_since = {},
                       .again = {}};
  const auto store = store_of(user);
  if (!store)
    return finish_later(task, cancelled, store.error());
  const auto terms = options_.image_terms ? options_.image_terms() : ImageTerms{};
  if (!terms)
    return finish_later(task, cancelled, terms.error());
  wanted.fetch = make_fetch(start, user, *store, *terms, cancelled);
  if (const Status queued = queue_.add(wanted.item); !queued)
    return finish_later(task, cancelled, queued.error());
  begin_next();
  if (const auto waiting = wanted_.find(task); waiting != wanted_.end() && !waiting->second.begun)
    note(task, cancelled, "waiting for other tasks' images or environments to be fetched first");
}

void Containers::begin_next() {
  while (const auto item = queue_.next()) {
    const auto wanted = wanted_.find(item->task);
    if (wanted == wanted_.end()) {  // it was cancelled
      queue_.ended(*item, false);
      continue;
    }
    wanted->second.begun = true;
    const auto cancelled = wanted->second.cancelled;
    const Status queued = workers_->submit(
        [fetch = wanted->second.fetch, cancelled, place = callbacks_.place,
         task = item->task]() -> Fetched {
          if (*cancelled)
            return fail(Code::unavailable, "cancelled");
          const FetchPlace here = BILLOW_TRY(place(task));
          return fetch(here);
        },
        [this, item = *item, cancelled](Fetched prepared) {
          fetched(item, cancelled, std::move(prepared));
        });
    if (!queued)
      loop_.post([this, item = *item, cancelled, error = queued.error()] {
        fetched(item, cancelled, pass(error));
      });
  }
}

void Containers::fetched(const FairQueue::Item& item,
                         const std::shared_ptr<std::atomic<bool>>& cancelled,
                         Fetched prepared) {
  queue_.ended(item, prepared && *prepared);
  changed_ = true;
  if (*cancelled)
    ended(item.task);  // removes what the fetch wrote after the task was cancelled
  else if (!prepared)
    finish(item.task, pass(prepared.error()));
  else if (*prepared)
    finish(item.task, std::move(**prepared));
  else
    wait_for_store(item, cancelled);
  begin_next();
}

// Another process of the user holds the store. The task goes back to the queue, so that other users
// can use its turn meanwhile.
void Containers::wait_for_store(const FairQueue::Item& item,
                                const std::shared_ptr<std::atomic<bool>>& cancelled) {
  Wanted& wanted = wanted_.at(item.task);
  const SteadyTime now = system_clock().steady();
  if (wanted.busy_since != SteadyTime{} && now - wanted.busy_since > options_.quiet_max)
    return finish(
        item.task,
        fail(Code::timed_out,
             fmt::format("{} could not be fetched: another process has locked this user's image "
                         "store on the node for {}",
                         item.what, format_duration(now - wanted.busy_since)),
             fmt::format("find the process that has files open in {}/{}", options_.directory,
                         item.user)));
  if (wanted.busy_since == SteadyTime{}) {
    wanted.busy_since = now;
    callbacks_.note(item.task, "waiting until another image has been fetched");
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

void Containers::finish(TaskId task, Result<Prepared> prepared) {
  const auto found = wanted_.find(task);
  if (found == wanted_.end())
    return;
  const Done done = std::move(found->second.done);
  wanted_.erase(found);
  callbacks_.note(task, "");
  done(std::move(prepared));
}

void Containers::cancel(TaskId task) {
  const auto found = wanted_.find(task);
  if (found == wanted_.end())
    return;
  *found->second.cancelled = true;
  wanted_.erase(found);
  queue_.remove(task);
}

Status Containers::wrap_command(const Prepared& prepared,
                                const wire::agent_v1::Start& start,
                                const std::vector<std::uint32_t>& granted,
                                const InMemory& in_memory,
                                TaskSpec& spec) const {
  container::Plan plan = prepared.plan;
  plan.terminal = start.pty;
  plan.confined = !wire::confined_for(start).empty();
  plan.strict = wire::strict_isolation(start);
  plan.shared = works_together(start) && !plan.confined;
  plan.refused_calls = in_memory.refused_calls;
  plan.network = in_memory.network;
  if (!in_memory.hosts.empty())
    plan.mounts.push_back(
        {.source = in_memory.hosts, .target = container::hosts_path, .read_only = true});
  if (plan.root && !plan.node_root)
    plan.refused_numbers = in_memory.refused_numbers;
  if (::geteuid() == 0 && !spec.identity) {
    const Identity outside = container_user(start.task);
    plan.outside_uid = outside.uid;
    plan.outside_gid = outside.gid;
  }
  // An environment's content names no files of the node that are shown to its job.
  const std::vector<std::string> without_environment = spec.env;
  if (!plan.root || plan.node_root)
    add_environment(prepared.environment, spec.env);
  if (plan.root) {
    for (const BoundVolume& volume : start.volumes)
      plan.mounts.push_back({.source = volume.source,
                             .target = volume.path,
                             .read_only = volume.read_only,
                             .exact = true});
    std::vector<std::string> names;
    for (const std::uint32_t card : granted)
      names.push_back(std::to_string(card));
    if (plan.node_root) {
      container::Plan gpus;  // the node's own libraries are there already
      BILLOW_TRY_VOID(container::add_devices(cdi_, names, gpus));
      plan.devices = std::move(gpus.devices);
    } else {
      BILLOW_TRY_VOID(container::add_devices(cdi_, names, plan));
    }
    add_named_files(without_environment, start, plan);
    if (!in_memory.shared.empty())
      plan.mounts.push_back({.source = in_memory.shared, .target = container::shared_memory});
    for (const SecretFiles::Written& secret : in_memory.secrets)
      plan.mounts.push_back(
          {.source = secret.file,
           .target = secret.wanted.empty() ? SecretFiles::usual_place(secret.name) : secret.wanted,
           .read_only = true});
    if (plan.confined || container::may_show(spec.cwd)) {
      plan.mounts.push_back({.source = spec.cwd, .target = spec.cwd});
      plan.directory = spec.cwd;
    }
  }
  spec.env.push_back(fmt::format("{}={}", container::plan_variable, wire::to_json_text(plan)));
  return {};
}

void Containers::remove_scratch(const std::function<bool(const std::string& key)>& which) {
  (void)cleaner_->submit(
      [directory = options_.directory, which]() -> int {
        for (const std::string& uid : container::names_in(directory))
          container::remove_from_store(directory + "/" + uid, "scratch", which);
        return 0;
      },
      [](int) {});
}

std::int64_t Containers::image_bytes() {
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

void Containers::ended(TaskId task) {
  if (!held_)
    return;  // this agent has prepared no container
  const std::string key = key_of(task);
  remove_scratch(
      [key](const std::string& name) { return name == key || name.starts_with(key + "."); });
}

void Containers::forget_others(const std::vector<TaskId>& live) {
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
