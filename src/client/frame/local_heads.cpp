#include "client/frame/local_heads.h"

#include <dirent.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/crypto.h"
#include "base/file.h"
#include "base/json.h"
#include "base/lock_file.h"
#include "base/text.h"
#include "client/frame/connect.h"

namespace billow::client {
namespace {

constexpr std::size_t pointer_bytes_max = 64 << 10;

// Several machines may share a home directory; their heads are not those of this machine.
std::string this_boot() {
  return std::string(trim(read_file("/proc/sys/kernel/random/boot_id", 64).value_or("")));
}

std::string state_directory() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state && *state == '/')
    return std::string(state) + "/billow";
  const std::string home = home_directory();
  return home.empty() ? "" : home + "/.local/state/billow";
}
std::string pointers_directory() {
  const std::string state = state_directory();
  return state.empty() ? "" : state + "/heads";
}

}  // namespace

std::string pointer_path(const std::string& data_dir) {
  const std::string directory = pointers_directory();
  return directory.empty()
             ? ""
             : fmt::format("{}/{}.json", directory, sha256_hex(data_dir).substr(0, 16));
}

std::vector<std::string> known_data_directories() {
  std::vector<std::string> out;
  const auto text = read_file(state_directory() + "/data-directories", pointer_bytes_max);
  for (const std::string& line : split(text.value_or(""), '\n'))
    if (line.starts_with('/') && file_exists(line + "/installation"))
      out.push_back(line);
  return out;
}

void remember_data_directory(const std::string& data_dir) {
  std::vector<std::string> known = known_data_directories();
  if (state_directory().empty() || !data_dir.starts_with('/') ||
      data_dir.find('\n') != data_dir.npos || std::ranges::find(known, data_dir) != known.end())
    return;
  known.push_back(data_dir);
  // Without it only a later `billow uninstall` says less.
  if (make_directories(state_directory(), 0700))
    (void)write_file_atomic(state_directory() + "/data-directories", join(known, "\n") + "\n");
}

bool head_lives_in(const std::string& data_dir) {
  return lock_is_held(data_dir + "/lock") || lock_is_held(data_dir + "/agent/lock");
}

std::vector<LocalHead> running_heads() {
  std::vector<LocalHead> out;
  const std::string directory = pointers_directory(), boot = this_boot();
  const std::unique_ptr<DIR, int (*)(DIR*)> open(
      directory.empty() ? nullptr : ::opendir(directory.c_str()), ::closedir);
  if (!open)
    return out;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string path = directory + "/" + entry->d_name;
    if (!path.ends_with(".json"))
      continue;
    const auto text = read_file(path, pointer_bytes_max);
    const auto json = text ? parse_json(*text) : Result<Json>(Json());
    if (!json || (json->is_object() && (*json)["boot_id"].str_or("") != boot))
      continue;
    const std::string data_dir((*json)["data_dir"].str_or(""));
    if (data_dir.empty() || !head_lives_in(data_dir)) {
      ::unlink(path.c_str());
      continue;
    }
    const auto& addresses = (*json)["addresses"].items();
    out.push_back({data_dir, addresses.empty() ? "" : std::string(addresses.front().str_or("")),
                   (*json)["machine_gpus"].bool_or(false)});
  }
  std::ranges::sort(out, {}, &LocalHead::data_dir);
  return out;
}

bool data_is_named(const std::string& option) {
  const char* variable = std::getenv("BILLOW_DATA");
  return !option.empty() || (variable && *variable);
}

Result<std::string> meant_data_directory(const std::string& option) {
  const std::string named = data_directory(option);
  if (data_is_named(option) || head_lives_in(named))
    return named;
  const auto heads = running_heads();
  if (heads.empty())
    return named;
  if (heads.size() == 1)
    return heads.front().data_dir;
  std::vector<std::string> places;
  constexpr std::size_t named_max = 4;
  for (const LocalHead& head : heads)
    if (places.size() < named_max)
      places.push_back(head.address.empty() ? head.data_dir
                                            : fmt::format("{} ({})", head.data_dir, head.address));
  if (heads.size() > named_max)
    places.push_back(fmt::format("{} more", heads.size() - named_max));
  return fail(
      Code::conflict,
      fmt::format("{} of your heads run on this machine: {}", heads.size(), join(places, ", ")),
      fmt::format("choose one with --data {0} or export BILLOW_DATA={0}",
                  shell_quote(heads.front().data_dir)));
}

}  // namespace billow::client
