// upgrade, uninstall: the files of this program, where install.sh put them. A Debian package is
// left to apt. Data is never removed unless that is asked for, and what stays is named.
#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/connect.h"
#include "client/frame/console.h"
#include "client/frame/local_heads.h"
#include "client/frame/server_commands.h"
#include "process/spawn.h"

namespace billow::client {
namespace {

constexpr std::size_t list_bytes_max = 1 << 20;

constexpr OptionSpec upgrade_options[] = {
    {"unsigned", 0, nullptr, "install a bundle without a signature, for example one you built"},
};
constexpr OptionSpec uninstall_options[] = {
    {"purge", 0, nullptr,
     "also remove your data, settings and logins: the journal, logs and costs of your head"},
};

struct Installation {
  std::string prefix;
  std::vector<std::string> files;  // below the prefix
};

// Where install.sh put this program.
Result<Installation> this_installation(std::string_view command) {
  const std::string bin = executable_dir();
  Installation out;
  out.prefix = bin.substr(0, bin.rfind('/'));
  const auto list = read_file(out.prefix + "/share/billow/installed", list_bytes_max);
  if (!list && out.prefix == "/usr" && file_exists("/var/lib/dpkg/info/billow.list"))
    return fail(Code::conflict, "this program was installed as a Debian package",
                command == "upgrade"
                    ? "sudo apt install ./billow_VERSION_ARCH.deb"
                    : "sudo apt remove billow; `apt purge billow` removes /var/lib/billow too");
  if (!list)
    return fail(Code::not_found,
                fmt::format("{} was not installed by install.sh, so its files are not known", bin),
                "see `billow docs install`");
  for (const std::string& line : split(*list, '\n'))
    if (!line.empty() && line.front() != '/' && line.find("..") == std::string::npos)
      out.files.push_back(line);
  return out;
}

std::vector<LocalHead> heads_that_run() {
  std::vector<LocalHead> heads = running_heads();
  const std::string usual = data_directory("");
  if (head_lives_in(usual) &&
      std::ranges::none_of(heads, [&](const LocalHead& h) { return h.data_dir == usual; }))
    heads.push_back({usual, "", false});
  return heads;
}

int cmd_upgrade(const Parsed& parsed) {
  const auto bundle = one_operand(parsed, "upgrade", "bundle (billow-VERSION-linux-ARCH.tar.gz)");
  if (!bundle)
    return report_usage(bundle.error());
  if (!file_exists(*bundle))
    return report(
        {Code::not_found, fmt::format("there is no file {}", *bundle),
         "download the bundle of the new version with its SHA256SUMS and SHA256SUMS.sig"});
  const auto here = this_installation("upgrade");
  if (!here)
    return report(here.error());
  process::Spawn request;
  // The script of the installed version checks the new one by the keys that were trusted before.
  request.argv = {"/bin/sh",  here->prefix + "/share/billow/install.sh",
                  "--prefix", here->prefix,
                  "--from",   *bundle};
  if (parsed.has("unsigned"))
    request.argv.emplace_back("--unsigned");
  request.out = request.err = process::inherited;
  request.group = process::Group::ours;
  auto child = process::spawn(request);
  if (!child)
    return report(child.error());
  if (!child->wait().ok())
    return exit_failed;  // the script has said why
  for (const LocalHead& head : heads_that_run())
    say(fmt::format(
        "the head in {} still runs the earlier version; restart it when it suits: `{}`, "
        "then `billow up` with its options (jobs continue)",
        head.data_dir, down_command(head.data_dir)));
  return 0;
}

// The directories that the agent of this data made in shared places such as /var/tmp.
std::vector<std::string> places_of(const std::string& data_dir) {
  std::vector<std::string> out;
  const std::string agent = data_dir + "/agent";
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(agent.c_str()), ::closedir);
  while (const dirent* entry = open ? ::readdir(open.get()) : nullptr) {
    if (!std::string_view(entry->d_name).starts_with("place-"))
      continue;
    const auto path = read_file(agent + "/" + entry->d_name, 4096);
    const std::string place(path ? trim(*path) : "");
    if (place.substr(place.rfind('/') + 1).starts_with("billow-"))
      out.push_back(place);
  }
  return out;
}

// Those that only this program's files were in; bin, lib and share stay.
void remove_empty_directories(const Installation& here) {
  for (std::string path : here.files)
    for (auto slash = path.rfind('/'); slash != path.npos && path.find('/') != slash;
         slash = path.rfind('/')) {
      path.resize(slash);
      if (::rmdir((here.prefix + "/" + path).c_str()) != 0 && errno != ENOENT)
        break;
    }
  ::rmdir((here.prefix + "/share/billow").c_str());
}

// What this user's commands and heads have written.
std::vector<std::string> own_directories() {
  const std::string usual = data_directory("");
  std::vector<std::string> data = known_data_directories();
  if (std::ranges::find(data, usual) == data.end())
    data.insert(data.begin(), usual);
  std::vector<std::string> out;
  for (const std::string& each : data) {
    out.push_back(each);
    for (const std::string& place : places_of(each))
      out.push_back(place);
  }
  out.push_back(config_directory());
  if (const std::string cache = cache_directory(); !cache.empty())
    out.push_back(cache);
  if (const std::string pointer = pointer_path(usual); !pointer.empty())
    out.push_back(pointer.substr(0, pointer.rfind("/heads/")));
  return out;
}

int cmd_uninstall(const Parsed& parsed) {
  const auto here = this_installation("uninstall");
  if (!here)
    return report(here.error());
  if (const auto heads = heads_that_run(); !heads.empty())
    return report({Code::conflict, fmt::format("a head still runs in {}", heads.front().data_dir),
                   fmt::format("stop it and its jobs first: {} --stop-jobs",
                               down_command(heads.front().data_dir))});
  std::vector<std::string> kept;
  for (const std::string& directory : own_directories()) {
    if (!file_exists(directory))
      continue;
    if (!parsed.has("purge"))
      kept.push_back(directory);
    else if (const Status gone = remove_tree(directory); !gone)
      kept.push_back(directory);
  }
  for (const std::string& file : here->files)
    ::unlink((here->prefix + "/" + file).c_str());
  ::unlink((here->prefix + "/share/billow/installed").c_str());
  remove_empty_directories(*here);
  print(fmt::format("removed Billow from {}\n", here->prefix));
  if (kept.empty()) {
    print("nothing of it stays\n");
    return 0;
  }
  print("these stay; remove them if you no longer need them:\n");
  for (const std::string& directory : kept)
    print(fmt::format("  rm -r {}\n", shell_quote(directory)));
  return 0;
}

}  // namespace

void add_installation_commands(CommandTable& table) {
  table.push_back({.name = "upgrade",
                   .summary = "install another version over this one",
                   .example = "billow upgrade billow-0.3.0-linux-x86_64.tar.gz",
                   .run = cmd_upgrade,
                   .usage = "BUNDLE",
                   .details = "For installations made by install.sh. SHA256SUMS and its signature "
                              "must be in the bundle's directory; only keys that the installed "
                              "version trusts are accepted. Running heads and jobs continue.",
                   .options = {upgrade_options},
                   .operands = Operands::some,
                   .completes = Completes::file,
                   .group = "head",
                   .talks_to_head = false,
                   .prints_json = false});
  table.push_back({.name = "uninstall",
                   .summary = "remove this program and list what is kept",
                   .example = "billow down --stop-jobs\nbillow uninstall",
                   .run = cmd_uninstall,
                   .options = {uninstall_options},
                   .group = "head",
                   .talks_to_head = false,
                   .prints_json = false});
}

}  // namespace billow::client
