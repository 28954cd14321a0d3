#include "container/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "container/bundle.h"
#include "container/confine.h"
#include "container/image_store.h"
#include "container/mapped_mounts.h"
#include "container/namespaces.h"
#include "container/podman.h"
#include "process/open_without_links_linux.h"
#include "process/spawn.h"
#include "process/user_namespace.h"

namespace billow::container {
namespace {

// Each rank of a task on a node has a separate container with its own writable layer.
std::string container_key(const Plan& plan) {
  const char* rank = ::getenv("LOCAL_RANK");
  return plan.root && rank && parse_int(rank, 0, 100'000) ? fmt::format("{}.{}", plan.key, rank)
                                                          : plan.key;
}

struct Scratch {
  std::string top, upper, work, root, bundle;
};
Result<Scratch> make_scratch(const Plan& plan) {
  const std::string top = scratch_dir(plan.store, container_key(plan));
  Scratch s{top, top + "/upper", top + "/work", top + "/root", top + "/bundle"};
  for (const std::string* path : {&s.top, &s.upper, &s.work, &s.root, &s.bundle})
    BILLOW_TRY_VOID(make_directories(*path, path == &s.upper ? 0755 : 0700));
  if (::chmod(s.upper.c_str(), 0755) != 0)
    return fail_errno(s.upper, errno);  // it becomes the root directory of the job
  if (!plan.uses.empty())
    BILLOW_TRY_VOID(mark_in_use(plan.store, container_key(plan), plan.uses));
  return s;
}

// Opens a path of the image; symbolic links cannot lead out of it.
Fd open_inside(const std::string& root, std::string_view path, std::uint64_t flags) {
  const Fd top(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT;
  return Fd(static_cast<int>(
      ::syscall(SYS_openat2, top.get(), std::string(path).c_str(), &how, sizeof how)));
}
std::string read_inside(const std::string& root, const char* path) {
  const Fd fd = open_inside(root, path, O_RDONLY | O_NONBLOCK);
  std::string text;
  char buffer[65536];
  for (ssize_t n = 0;
       fd && text.size() < (4 << 20) && (n = ::read(fd.get(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}
// Reports a missing command like a shell does, with the same exit code; the runtime has only one
// exit code for every error.
Status check_command(const std::string& root, const Json& process) {
  const auto& words = process["args"].items();
  const auto is = [&](std::size_t at, const char* word) {
    return at < words.size() && words[at].str_or("") == word;
  };
  std::size_t first = is(0, as_user_path) && is(1, init_word) ? 2 : 0;
  if (is(first, as_user_path) && !is(first + 1, confine_word))
    first += 3;  // a uid and a gid follow
  while (is(first, as_user_path))
    first += 3;  // "confine" and numbers
  const std::string command(first < words.size() ? words[first].str_or("") : "");
  if (command.empty())
    return fail(Code::invalid, "neither the image nor the job names a command",
                "give a command after --");
  if (command.find('/') != std::string::npos) {
    const std::string path =
        command.front() == '/' ? command : std::string(process["cwd"].str_or("/")) + "/" + command;
    if (open_inside(root, path, O_PATH) || errno != ENOENT || container::may_show(path))
      return {};  // it may lie in a mount that is not made yet
  } else {
    for (const Json& entry : process["env"].items())
      if (const auto text = entry.str_or(""); text.starts_with("PATH="))
        for (const std::string& directory : split(text.substr(5), ':'))
          if (open_inside(root, directory + "/" + command, O_PATH) ||
              container::may_show(directory))
            return {};
  }
  return fail(Code::not_found, fmt::format("{}: command not found in the image", command));
}

// The container shares the node's network, so it uses the node's names and addresses too, unless
// the agent gives it other names.
void add_network_files(Plan& plan) {
  for (const char* file : {"/etc/resolv.conf", hosts_path, "/etc/hostname"}) {
    char resolved[PATH_MAX];
    const bool given =
        std::ranges::any_of(plan.mounts, [&](const Mount& mount) { return mount.target == file; });
    if (!given && ::realpath(file, resolved))
      plan.mounts.push_back({.source = resolved, .target = file, .read_only = true});
  }
}

// What a confined job needs of its node. Everything else of the node (home directories, /run, /tmp,
// /var, other disks) is not in its root.
constexpr const char* node_directories[] = {"/usr",   "/bin",    "/sbin", "/lib", "/lib32",
                                            "/lib64", "/libx32", "/etc",  "/opt"};

bool in_node_directory(std::string_view path) {
  return std::ranges::any_of(node_directories, [&](std::string_view top) {
    return path.starts_with(top) && path.substr(top.size()).starts_with('/');
  });
}

// A root made of the node's directories. It consists of empty directories, links, and mounts.
Status make_node_root(Plan& plan, const Scratch& scratch) {
  const std::string tree = scratch.top + "/node";
  for (const char* empty : {"/tmp", "/var/tmp", "/run", "/root"})
    BILLOW_TRY_VOID(make_directories(tree + empty, 0755));
  for (const char* shared : {"/tmp", "/var/tmp"})
    if (::chmod((tree + shared).c_str(), 01777) != 0)
      return fail_errno(tree + shared, errno);
  std::vector<Mount> mounts;
  for (const char* path : node_directories) {
    struct stat info {};
    if (::lstat(path, &info) != 0)
      continue;
    if (S_ISDIR(info.st_mode)) {
      mounts.push_back({.source = path, .target = path, .read_only = true});
      continue;
    }
    char target[PATH_MAX];
    const ssize_t length = ::readlink(path, target, sizeof target);
    if (length > 0 &&
        ::symlink(std::string(target, static_cast<std::size_t>(length)).c_str(),
                  (tree + path).c_str()) != 0 &&
        errno != EEXIST)
      return fail_errno(tree + path, errno);
  }
  // For `billow stage`, `billow ranks` and what the job itself asks of Billow.
  if (const std::string program = executable_dir() + "/billow"; !in_node_directory(program))
    mounts.push_back({.source = program, .target = program, .read_only = true});
  plan.mounts.insert(plan.mounts.begin(), mounts.begin(), mounts.end());
  plan.layers_dir = scratch.top;
  plan.layers = {"node"};
  return {};
}

// What comes with every container, and what does not exist on this node.
Status complete_mounts(Plan& plan) {
  add_network_files(plan);
  plan.mounts.push_back({.source = executable_dir() + "/billow-supervise",
                         .target = as_user_path,
                         .read_only = true});
  std::erase_if(plan.mounts, [](const Mount& m) { return m.optional && !file_exists(m.source); });
  for (const Mount& m : plan.mounts)
    if (!file_exists(m.source))
      return fail(
          Code::unavailable,
          fmt::format("{}, to be mounted at {}, does not exist on this node", m.source, m.target));
  std::erase_if(plan.devices, [](const std::string& path) { return !file_exists(path); });
  return {};
}

// The path to the task's own directories can be passed through; only their user can look into them.
Status give_scratch(const Plan& plan, const Scratch& scratch) {
  for (const std::string& path : {plan.store, plan.store + "/scratch"}) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd || ::fchmod(fd.get(), 0711) != 0)
      return fail_errno(path, errno);
  }
  for (const std::string& path : {scratch.upper, scratch.work, scratch.root, scratch.bundle,
                                  scratch.top + "/seen", scratch.top}) {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd || ::fchown(fd.get(), plan.outside_uid, plan.outside_gid) != 0)
      return fail_errno(path, errno);
  }
  return {};
}

// Root's container gets an unprivileged user, to whom the files it may use are shown as its own.
Status enter_as_outside_user(Plan& plan, const Scratch& scratch) {
  const Fd space =
      BILLOW_TRY(process::make_user_namespace({.uid = plan.outside_uid, .gid = plan.outside_gid}));
  BILLOW_TRY_VOID(enter_mount_namespace());
  const MappedMounts mapped = BILLOW_TRY(MappedMounts::prepare(plan, space.get()));
  BILLOW_TRY_VOID(mapped.show(scratch.top + "/seen", plan));
  BILLOW_TRY_VOID(give_scratch(plan, scratch));
  BILLOW_TRY_VOID(process::enter_user_namespace(space.get()));
  return enter_mount_namespace();
}

Status enter_for_image(Plan& plan, const Scratch& scratch) {
  if (plan.outside_uid == 0)
    return enter_namespaces(Identity::as_root);
  const Status entered = enter_as_outside_user(plan, scratch);
  // Where the kernel or file system cannot do it, the container keeps root's uid, and only its
  // namespaces separate it from the node (docs/environments.md).
  if (!entered && entered.error().code == Code::unsupported)
    return enter_namespaces(Identity::as_root);
  return entered;
}

// A node that hides parts of its own /proc (one that is a container itself) lets nobody mount a new
// one.
bool can_own_processes(const std::string& target) {
  process::Spawn inner;
  inner.body = [&target] {
    return ::unshare(CLONE_NEWNS) == 0 && ::mount("proc", target.c_str(), "proc", 0, nullptr) == 0
               ? 0
               : 1;
  };
  process::Spawn outer;
  outer.body = [&inner] {
    if (::unshare(CLONE_NEWPID) != 0)
      return 1;
    auto child = process::spawn(inner);
    return child && child->wait().ok() ? 0 : 1;
  };
  auto child = process::spawn(outer);
  return child && child->wait().ok();
}

// The runtime would follow links that were put into the path of a volume since it was checked. So
// it gets another path: that of a mount, in memory that nobody else sees, of what was opened.
Status hold_volumes(Plan& plan, const Scratch& scratch) {
  std::size_t number = 0;
  for (Mount& mount : plan.mounts) {
    if (!mount.exact)
      continue;
    const Fd fd(process::open_without_links(mount.source.c_str()));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0)
      return fail_errno(fmt::format("find the volume {} on this node", mount.source), errno);
    const std::string held = fmt::format("{}/volume{}", scratch.bundle, number++);
    if (S_ISDIR(info.st_mode))
      BILLOW_TRY_VOID(make_directories(held, 0700));
    else
      BILLOW_TRY_VOID(write_file_atomic(held, "", 0600));
    BILLOW_TRY_VOID(container::bind(fmt::format("/proc/self/fd/{}", fd.get()), held, false));
    mount.source = held;
    mount.exact = false;
  }
  return {};
}

std::vector<std::string> without_programs(const Plan& plan) {
  std::vector<std::string> out;
  for (const Mount& m : plan.mounts) {
    struct statvfs info {};
    if (::statvfs(m.source.c_str(), &info) == 0 && (info.f_flag & ST_NOEXEC))
      out.push_back(m.source);
  }
  return out;
}

std::string node_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

Status enter_network(const Plan& plan) {
  if (plan.no_network)
    return enter_empty_network();
  return plan.network != 0 ? check_network(plan.network) : Status{};
}

Status run_in_image(Plan plan,
                    const std::vector<std::string>& command,
                    const std::vector<std::string>& env) {
  const std::string runc = BILLOW_TRY(find_program("runc"));
  const Scratch scratch = BILLOW_TRY(make_scratch(plan));
  if (plan.confined && ::geteuid() == 0)
    return fail(Code::internal, "a confined job was to run as root");
  if (plan.node_root)
    BILLOW_TRY_VOID(make_node_root(plan, scratch));
  BILLOW_TRY_VOID(complete_mounts(plan));
  BILLOW_TRY_VOID(enter_for_image(plan, scratch));
  BILLOW_TRY_VOID(enter_network(plan));
  BILLOW_TRY_VOID(lock_control_groups());
  BILLOW_TRY_VOID(mount_overlay({.directory = plan.layers_dir,
                                 .lower = plan.layers,
                                 .upper = scratch.upper,
                                 .work = scratch.work,
                                 .target = scratch.root}));
  // In memory, and in this mount namespace alone: it holds the job's variables, and goes with its
  // last process.
  BILLOW_TRY_VOID(mount_memory(scratch.bundle, "mode=0700,size=16m"));
  BILLOW_TRY_VOID(hold_volumes(plan, scratch));
  const std::string passwd = read_inside(scratch.root, "/etc/passwd"),
                    groups = read_inside(scratch.root, "/etc/group");
  const bool own_processes = !plan.shared && can_own_processes(scratch.bundle);
  if (plan.confined && !own_processes)
    return fail(Code::unsupported,
                "this node cannot keep the job apart from other processes of its user: it lets "
                "nobody mount /proc",
                "an agent on the machine itself can, not one in a container that hides parts of "
                "/proc");
  const Json bundle = BILLOW_TRY(make_bundle(plan, {.root = scratch.root,
                                                    .command = command,
                                                    .env = env,
                                                    .passwd = passwd,
                                                    .groups = groups,
                                                    .hostname = node_name(),
                                                    .own_processes = own_processes,
                                                    .without_programs = without_programs(plan)}));
  BILLOW_TRY_VOID(check_command(plan.node_root ? "/" : scratch.root, bundle["process"]));
  BILLOW_TRY_VOID(write_file_atomic(scratch.bundle + "/config.json", bundle.dump(), 0600));
  BILLOW_TRY_VOID(make_directories(scratch.bundle + "/state", 0700));
  std::vector<std::string> argv = {runc,
                                   "--root",
                                   scratch.bundle + "/state",
                                   "--log",
                                   scratch.bundle + "/log",
                                   "run",
                                   "--bundle",
                                   scratch.bundle,
                                   plan.key};
  std::vector<std::string> clean = {
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
      "XDG_RUNTIME_DIR=" + scratch.bundle};
  BILLOW_TRY_VOID(forbid_privileged_files());
  return process::replace_this_program({.argv = std::move(argv), .env = std::move(clean)});
}

// Mounts a tree at its own path on the node's file system. Missing directories of the path are not
// created there, because they would be left behind.
Status show_tree(const Overlay& overlay, const Scratch& scratch, std::size_t number) {
  const std::string upper = fmt::format("{}/{}", scratch.upper, number),
                    work = fmt::format("{}/{}", scratch.work, number);
  for (const std::string& path : {upper, work})
    BILLOW_TRY_VOID(make_directories(path, 0755));
  struct stat info {};
  if (::stat(overlay.target.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
    return mount_overlay({.directory = {},
                          .lower = {overlay.lower},
                          .upper = upper,
                          .work = work,
                          .target = overlay.target});
  // Overlay the nearest existing parent with a view of itself that also contains the rest of the
  // path.
  std::string above = overlay.target, rest;
  while (above.size() > 1 && !(::stat(above.c_str(), &info) == 0 && S_ISDIR(info.st_mode))) {
    const auto slash = above.rfind('/');
    rest = above.substr(slash) + rest;
    above.erase(std::max<std::size_t>(slash, 1));
    if (slash == 0)
      break;
  }
  if (above == "/")
    return fail(
        Code::unsupported,
        fmt::format("the environment belongs at {}, and this node has no directory of that path",
                    overlay.target),
        "create the directory there, or save the environment from a path that every node has");
  const std::string view = fmt::format("{}/view{}", scratch.top, number);
  BILLOW_TRY_VOID(make_directories(view + rest, 0755));
  // Writes into the parent go to a separate layer; the real directory stays as it is.
  const std::string over_upper = fmt::format("{}/above{}", scratch.upper, number),
                    over_work = fmt::format("{}/above{}", scratch.work, number);
  for (const std::string& path : {over_upper, over_work})
    BILLOW_TRY_VOID(make_directories(path, 0755));
  BILLOW_TRY_VOID(mount_overlay({.directory = {},
                                 .lower = {view, above},
                                 .upper = over_upper,
                                 .work = over_work,
                                 .target = above}));
  return mount_overlay({.directory = {},
                        .lower = {overlay.lower},
                        .upper = upper,
                        .work = work,
                        .target = overlay.target});
}

Status run_on_machine(const Plan& plan,
                      const std::vector<std::string>& command,
                      const std::vector<std::string>& env) {
  char here[PATH_MAX];
  if (!::getcwd(here, sizeof here))
    return fail_errno("the working directory", errno);
  const Scratch scratch = BILLOW_TRY(make_scratch(plan));
  // Root may mount; every other user needs a user namespace for that.
  if (::geteuid() == 0)
    BILLOW_TRY_VOID(enter_mount_namespace());
  else
    BILLOW_TRY_VOID(enter_namespaces(Identity::as_self));
  BILLOW_TRY_VOID(enter_network(plan));
  for (std::size_t i = 0; i < plan.overlays.size(); ++i)
    BILLOW_TRY_VOID(show_tree(plan.overlays[i], scratch, i));
  for (const Mount& m : plan.mounts)
    BILLOW_TRY_VOID(bind(m.source, m.target, m.read_only));
  if (::chdir(here) != 0)
    return fail_errno(here, errno);  // a mount may have hidden it
  std::vector<std::string> variables = env;
  variables.insert(variables.end(), plan.env.begin(), plan.env.end());
  BILLOW_TRY_VOID(confine(plan.refused_calls));
  return process::replace_this_program({.argv = command, .env = std::move(variables)});
}

}  // namespace

Status run_plan(const Plan& plan,
                const std::vector<std::string>& command,
                const std::vector<std::string>& env) {
  return plan.root ? run_in_image(plan, command, env) : run_on_machine(plan, command, env);
}

}  // namespace billow::container
