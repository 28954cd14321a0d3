#include "agent/content/project_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>

#include "agent/content/file_service.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/files/remove_tree.h"
#include "base/files/walk_tree.h"
#include "base/log.h"
#include "base/text.h"
#include "core/model/surroundings.h"
#include "core/wire/confined.h"

namespace billow::agent {

Result<std::string> unguessable_name(const std::string& data_dir, const std::string& purpose) {
  const std::string key_path = data_dir + "/cache-key";
  auto key = read_file(key_path, 256);
  if (!key) {
    BILLOW_TRY_VOID(write_file_atomic(key_path, random_token(24), 0600));
    key = BILLOW_TRY(read_file(key_path, 256));
  }
  return hmac_sha256_hex(*key, purpose).substr(0, 40);
}

Result<std::string> project_cache(const OwnPlace& work,
                                  const std::string& data_dir,
                                  const std::string& project) {
  // The parent directory cannot be listed, so only the name gives access.
  const std::string relative = "caches/" + BILLOW_TRY(unguessable_name(data_dir, project));
  BILLOW_TRY(work.directory({.relative = relative, .mode = 01777}));
  return work.below(relative);
}

namespace {

constexpr std::int64_t month_min = std::int64_t{30} * 24 * 60;
constexpr std::int64_t ages_max = 500'000;

// How long a file was neither read nor written: in minutes for a month, in hours from then on. Jobs
// set these times as they like, so there are few different ages: they are counted in memory.
std::int64_t age_of(const struct stat& info, std::int64_t now_s) {
  const std::int64_t used_s = std::max(info.st_atim.tv_sec, info.st_mtim.tv_sec);
  const std::int64_t minutes = std::max<std::int64_t>(0, (now_s - used_s) / 60);
  return minutes < month_min ? minutes : std::min(month_min + (minutes - month_min) / 60, ages_max);
}

std::int64_t bytes_of(const struct stat& info) {
  return info.st_blocks * 512;
}

}  // namespace

// Twice through all of them: first how much is how old, then what is too old goes. No list of the
// files is kept. Never follows links: jobs created what is in there.
void trim_project_caches(const std::string& work_dir, std::uint64_t bytes_max) {
  const std::string caches = work_dir + "/caches";
  const auto most = static_cast<std::int64_t>(std::min<std::uint64_t>(bytes_max, INT64_MAX));
  const std::int64_t now_s = system_clock().wall().ns / 1'000'000'000;
  std::map<std::int64_t, std::int64_t, std::greater<>> bytes_by_age;  // the oldest first
  std::int64_t total = 0;
  const auto add = [&](int, const char*, const struct stat& info) {
    if (S_ISREG(info.st_mode)) {
      bytes_by_age[age_of(info, now_s)] += bytes_of(info);
      total += bytes_of(info);
    }
    return true;
  };
  // What lies deeper than any path reaches would never be found: it is no cache.
  const auto remove_all = [](int directory, const char* name) {
    if (const Status gone =
            remove_tree_of_user(fmt::format("/proc/self/fd/{}/{}", directory, name));
        !gone)
      log_warn("a cache has a directory below {} others, which cannot be removed: {}",
               walk_levels_max, gone.error().message);
  };
  walk_tree(caches, {.entry = add, .too_deep = remove_all});
  std::int64_t excess = total - most;
  if (excess <= 0)
    return;
  // The youngest of those that go: of that age, only as many as must.
  std::int64_t youngest = 0, of_youngest = 0;
  for (const auto& [age, bytes] : bytes_by_age) {
    youngest = age;
    of_youngest = excess;
    if ((excess -= bytes) <= 0)
      break;
  }
  walk_tree(caches, {.entry = [&](int directory, const char* name, const struct stat& info) {
              const std::int64_t age = S_ISREG(info.st_mode) ? age_of(info, now_s) : -1;
              const bool goes = age > youngest || (age == youngest && of_youngest > 0);
              if (goes && ::unlinkat(directory, name, 0) == 0 && age == youngest)
                of_youngest -= bytes_of(info);
              return true;
            }});
}

Result<std::string> plain_path(const std::string& path) {
  for (const std::string& part : split(path, '/'))
    if (part.empty() || part == "." || part == ".." || part.size() > 255 ||
        part.find('\0') != std::string::npos)
      return fail(Code::invalid,
                  fmt::format("\"{}\" is no path inside the working directory", path));
  if (path.size() > 4096)
    return fail(Code::invalid, "a path is too long");
  return path;
}

Status add_file_variables(const wire::agent_v1::Start& start,
                          const FilePlaces& places,
                          Environment& env) {
  const auto& wishes = start.surroundings;
  for (const char* name : {inputs_variable, object_outputs_variable, "BILLOW_CACHE"})
    env.erase(name);  // inherited from the job that submitted this one
  const auto list = [&](const char* name, const std::vector<ObjectWish>& all) {
    std::vector<std::string> lines;
    for (const ObjectWish& wish : all)
      lines.push_back(wish.url + "\t" + wish.path);
    if (!lines.empty())
      env[name] = join(lines, "\n");
  };
  list(inputs_variable, wishes.inputs);
  list(object_outputs_variable, wishes.outputs);
  // Behind the wall of strict isolation nothing is shared.
  if (const auto project = env.find("BILLOW_PROJECT");
      project != env.end() && !wire::strict_isolation(start))
    if (const auto cache = project_cache(places.cache, places.kept_dir, project->second))
      env["BILLOW_CACHE"] = *cache;
  if (start.env.contains(surroundings::files))
    env[files_socket_variable] = places.socket;
  else if (!wishes.inputs.empty() || !wishes.outputs.empty())
    return fail(Code::invalid,
                "inputs and outputs need a synced working directory: submit the job with --sync");
  return {};
}

}  // namespace billow::agent
