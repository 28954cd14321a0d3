#include "agent/content/project_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "agent/content/file_service.h"
#include "base/crypto.h"
#include "base/file.h"
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

// Never follows links: jobs created what is in there.
void trim_project_caches(const std::string& work_dir, std::uint64_t bytes_max) {
  struct File {
    std::int64_t used_s;
    std::uint64_t bytes;
    std::string path;
  };
  std::vector<File> files;
  std::uint64_t total = 0;
  std::error_code error;
  namespace fs = std::filesystem;
  for (fs::recursive_directory_iterator
           at(work_dir + "/caches", fs::directory_options::skip_permission_denied, error),
       end;
       !error && at != end; at.increment(error)) {
    struct stat info {};
    if (::lstat(at->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      continue;
    const auto bytes = static_cast<std::uint64_t>(info.st_blocks) * 512;
    files.push_back(
        {std::max(info.st_atim.tv_sec, info.st_mtim.tv_sec), bytes, at->path().string()});
    total += bytes;
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used_s < b.used_s; });
  for (const File& file : files) {
    if (total <= bytes_max)
      return;
    // Open level by level: a job may replace a directory with a link meanwhile.
    Fd directory(::open((work_dir + "/caches").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto parts = split(std::string_view(file.path).substr(work_dir.size() + 8), '/');
    for (std::size_t i = 0; directory && i + 1 < parts.size(); ++i)
      directory = Fd(::openat(directory.get(), parts[i].c_str(),
                              O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (directory && ::unlinkat(directory.get(), parts.back().c_str(), 0) == 0)
      total -= std::min(total, file.bytes);
  }
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
