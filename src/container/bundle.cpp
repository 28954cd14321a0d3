#include "container/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"

namespace billow::container {
namespace {

Json strings(std::initializer_list<const char*> list) {
  Json out = Json::array();
  for (const char* item : list)
    out.push(item);
  return out;
}
Json strings(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const std::string& item : list)
    out.push(item);
  return out;
}

Json mount(const char* target,
           const char* type,
           const char* source,
           std::initializer_list<const char*> options) {
  return Json::object(
      {{"destination", target}, {"type", type}, {"source", source}, {"options", strings(options)}});
}

// The system mounts. /proc shows the node's processes only if process ids are the node's.
Json system_mounts(bool own_processes, bool own_memory) {
  Json out = Json::array();
  out.push(own_processes ? mount("/proc", "proc", "proc", {"nosuid", "noexec", "nodev"})
                         : mount("/proc", "bind", "/proc", {"rbind", "nosuid", "noexec", "nodev"}));
  out.push(mount("/dev", "tmpfs", "tmpfs",
                 {"nosuid", "noexec", "strictatime", "mode=755", "size=65536k"}));
  out.push(mount("/dev/pts", "devpts", "devpts",
                 {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}));
  if (own_memory)
    out.push(mount("/dev/shm", "tmpfs", "shm", {"nosuid", "nodev", "mode=1777"}));
  out.push(mount("/sys", "bind", "/sys", {"rbind", "nosuid", "noexec", "nodev", "ro"}));
  return out;
}

// Later values win; names keep the order of their first appearance.
class Variables {
 public:
  void set(std::string_view entry) {
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return;
    values_.insert_or_assign(std::string(entry.substr(0, equals)),
                             std::string(entry.substr(equals + 1)));
  }
  void set_if_missing(const std::string& name, const std::string& value) {
    values_.try_emplace(name, value);
  }
  void append_path(const std::string& name, const std::string& directory) {
    std::string& value = values_[name];
    value += (value.empty() ? "" : ":") + directory;
  }
  Json list() const {
    Json out = Json::array();
    for (const auto& [name, value] : values_)
      out.push(name + "=" + value);
    return out;
  }

 private:
  std::map<std::string, std::string> values_;
};

// CAP_SETFCAP: without it the kernel maps no other user to root, as an image's own user needs.
// Capabilities of files are refused by a filter (confine.h).
Json capabilities() {
  const Json list = strings({"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID",
                             "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID",
                             "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"});
  return Json::object({{"bounding", list}, {"effective", list}, {"permitted", list}});
}

Json mounts_of(const Plan& plan, const BundleParts& parts) {
  const bool shown_memory = std::any_of(plan.mounts.begin(), plan.mounts.end(),
                                        [](const Mount& m) { return m.target == shared_memory; });
  Json mounts = system_mounts(parts.own_processes, !shown_memory);
  for (const Mount& m : plan.mounts) {
    Json options = strings({"rbind", "rprivate", "nosuid", "nodev"});
    options.push(m.read_only ? "ro" : "rw");
    if (std::find(parts.without_programs.begin(), parts.without_programs.end(), m.source) !=
        parts.without_programs.end())
      options.push("noexec");
    mounts.push(Json::object({{"destination", m.target},
                              {"type", "bind"},
                              {"source", m.source},
                              {"options", std::move(options)}}));
  }
  // Device files cannot be created in a user namespace, only bind-mounted.
  for (const std::string& device : plan.devices)
    mounts.push(Json::object({{"destination", device},
                              {"type", "bind"},
                              {"source", device},
                              {"options", strings({"bind", "rw", "nosuid", "noexec"})}}));
  return mounts;
}

Json namespaces_of(const BundleParts& parts) {
  Json spaces = Json::array();
  spaces.push(Json::object({{"type", "mount"}}));
  if (!parts.hostname.empty())
    spaces.push(Json::object({{"type", "uts"}}));
  for (const char* type : {"pid", "ipc"})
    if (parts.own_processes)
      spaces.push(Json::object({{"type", type}}));
  return spaces;
}

// Libraries read /sys to find GPUs and processors; control groups show how much other jobs use.
Json masked_paths(bool strict) {
  Json paths = strings(
      {"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware", "/sys/fs/selinux"});
  if (strict)
    for (const char* path : {"/sys/fs/cgroup", "/sys/kernel", "/sys/class/net",
                             "/sys/devices/virtual/net", "/sys/block", "/sys/class/block"})
      paths.push(path);
  return paths;
}

}  // namespace

std::string home_of(std::string_view user, std::string_view passwd) {
  const std::string_view who = user.substr(0, user.find(':'));
  for (const std::string& line : split(passwd, '\n')) {
    const auto words = split(line, ':');
    if (words.size() < 6)
      continue;
    if (who.empty() ? words[2] == "0" : words[0] == who || words[2] == who)
      return words[5];
  }
  return {};
}

Result<ImageUser> user_of(std::string_view user, std::string_view passwd, std::string_view groups) {
  ImageUser out;
  if (user.empty())
    return out;
  const auto number = [](std::string_view text) {
    return parse_int(text, 0, 4'294'967'294);
  };
  const auto colon = user.find(':');
  const std::string_view who = user.substr(0, colon), group = colon == std::string_view::npos
                                                                  ? std::string_view()
                                                                  : user.substr(colon + 1);
  const auto entry = [](std::string_view list, std::string_view name,
                        std::size_t at) -> std::vector<std::string> {
    for (const std::string& line : split(list, '\n'))
      if (auto words = split(line, ':');
          words.size() > std::max<std::size_t>(at, 2) && (words[0] == name || words[2] == name))
        return words;
    return {};
  };
  const auto known = entry(passwd, who, 3);
  if (!known.empty() && number(known[2]) && number(known[3])) {
    out.uid = static_cast<std::uint32_t>(*number(known[2]));
    out.gid = static_cast<std::uint32_t>(*number(known[3]));
  } else if (const auto plain = number(who)) {
    out.uid = static_cast<std::uint32_t>(*plain);
  } else {
    return fail(
        Code::invalid,
        fmt::format("the image runs as user \"{}\", which its /etc/passwd does not have", who));
  }
  if (group.empty())
    return out;
  const auto known_group = entry(groups, group, 2);
  const auto gid = !known_group.empty() ? number(known_group[2]) : number(group);
  if (!gid)
    return fail(
        Code::invalid,
        fmt::format("the image runs as group \"{}\", which its /etc/group does not have", group));
  out.gid = static_cast<std::uint32_t>(*gid);
  return out;
}

bool may_show(std::string_view directory) {
  if (!directory.starts_with('/') || directory == "/")
    return false;
  for (const std::string_view top : {"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64",
                                     "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr"})
    if (directory == top || (directory.starts_with(top) && directory[top.size()] == '/'))
      return false;
  for (const std::string_view alone :
       {"/home", "/root", "/opt", "/var", "/var/lib", "/var/log", "/var/cache", "/var/run"})
    if (directory == alone)
      return false;
  return true;
}

Result<Json> make_bundle(const Plan& plan, const BundleParts& parts) {
  std::vector<std::string> argv = plan.config.entrypoint;
  const auto& rest = parts.command.empty() ? plan.config.command : parts.command;
  argv.insert(argv.end(), rest.begin(), rest.end());
  if (argv.empty())
    return fail(Code::invalid, "the image has no default command", "give a command after --");
  if (plan.refused_calls != 0 || !plan.refused_numbers.empty())
    argv.insert(argv.begin(), {as_user_path, confine_word,
                               confinement(plan.refused_calls, plan.refused_numbers)});
  if (const ImageUser user = BILLOW_TRY(user_of(plan.config.user, parts.passwd, parts.groups));
      !user.root())
    argv.insert(argv.begin(), {as_user_path, std::to_string(user.uid), std::to_string(user.gid)});
  if (parts.own_processes)
    argv.insert(argv.begin(), {as_user_path, init_word});

  Variables env;
  env.set("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
  for (const std::string& entry : plan.config.env)
    env.set(entry);
  for (const std::string& entry : plan.env)
    env.set(entry);
  for (const std::string& entry : parts.env)
    env.set(entry);
  const std::string home = home_of(plan.config.user, parts.passwd);
  env.set_if_missing("HOME", home.empty() ? "/" : home);
  if (plan.terminal)
    env.set_if_missing("TERM", "xterm");
  env.set("container=oci");
  // Open MPI refuses to run as root. Inside, the user is root, but without root's power.
  env.set_if_missing("OMPI_ALLOW_RUN_AS_ROOT", "1");
  env.set_if_missing("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  for (const std::string& directory : plan.library_dirs)
    env.append_path("LD_LIBRARY_PATH", directory);

  std::string directory = plan.directory;
  if (directory.empty())
    directory = plan.config.directory.empty() ? parts.default_directory : plan.config.directory;
  Json process = Json::object({{"terminal", plan.terminal},
                               {"user", Json::object({{"uid", 0}, {"gid", 0}})},
                               {"args", strings(argv)},
                               {"env", env.list()},
                               {"cwd", directory},
                               {"capabilities", capabilities()},
                               {"noNewPrivileges", true}});
  Json bundle = Json::object(
      {{"ociVersion", "1.0.2"},
       {"process", std::move(process)},
       {"root", Json::object({{"path", parts.root}, {"readonly", false}})},
       {"mounts", mounts_of(plan, parts)},
       {"linux", Json::object({{"namespaces", namespaces_of(parts)},
                               {"maskedPaths", masked_paths(plan.strict)},
                               {"readonlyPaths", strings({"/proc/sys", "/proc/sysrq-trigger",
                                                          "/proc/irq", "/proc/bus"})}})}});
  if (!parts.hostname.empty())
    bundle.set("hostname", parts.hostname);
  return bundle;
}

}  // namespace billow::container
