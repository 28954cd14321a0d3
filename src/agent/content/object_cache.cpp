#include "agent/content/object_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::agent {
namespace {

std::int64_t nanoseconds_of(const timespec& t) {
  return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

// The digest of a file, read in pieces because a model may be larger than memory.
Result<std::string> digest_of(int fd) {
  std::string buffer(4 << 20, '\0'), chain;
  std::uint64_t at = 0;
  for (;;) {
    const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return fail_errno("read a fetched object", errno);
    if (n == 0)
      break;
    const Sha256 one = sha256({buffer.data(), static_cast<std::size_t>(n)});
    chain.append(reinterpret_cast<const char*>(one.data()), one.size());
    at += static_cast<std::uint64_t>(n);
  }
  return sha256_hex(chain);
}

// Opens a directory below the job's and creates it if necessary. Never follows links, which the job
// may have created.
Result<Fd> directory_below(const std::string& root,
                           const std::string& path,
                           const std::optional<Identity>& owner) {
  Fd at(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!at)
    return fail_errno(root, errno);
  for (const std::string& part : split(path, '/')) {
    if (part.empty())
      continue;
    const bool made = ::mkdirat(at.get(), part.c_str(), 0755) == 0;
    if (!made && errno != EEXIST)
      return fail_errno(path, errno);
    Fd next(::openat(at.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next)
      return fail(Code::conflict,
                  fmt::format("an input needs a directory at {}, but there is a file", path));
    if (made && owner && ::geteuid() == 0 && ::fchown(next.get(), owner->uid, owner->gid) != 0)
      return fail_errno(path, errno);
    at = std::move(next);
  }
  return at;
}

Status copy_into(int directory, const std::string& name, const std::string& from) {
  const Fd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  const Fd out(::openat(directory, name.c_str(),
                        O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444));
  if (!in || !out)
    return fail_errno(name, errno);
  std::string buffer(1 << 20, '\0');
  for (;;) {
    const ssize_t n = ::read(in.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return fail_errno(name, errno);
    if (n == 0)
      return {};
    BILLOW_TRY_VOID(write_all(out.get(), {buffer.data(), static_cast<std::size_t>(n)}));
  }
}

Status link_into(int directory, const std::string& name, const std::string& from) {
  if (::linkat(AT_FDCWD, from.c_str(), directory, name.c_str(), 0) == 0)
    return {};
  if (errno == EEXIST) {
    ::unlinkat(directory, name.c_str(), 0);
    if (::linkat(AT_FDCWD, from.c_str(), directory, name.c_str(), 0) == 0)
      return {};
  }
  if (errno != EXDEV && errno != EMLINK && errno != EPERM)
    return fail_errno(name, errno);
  return copy_into(directory, name, from);
}

}  // namespace

Result<std::unique_ptr<ObjectCache>> ObjectCache::open(Options options) {
  for (const char* part : {"/objects", "/keys", "/arriving"})
    BILLOW_TRY_VOID(make_directories(options.directory + part, 0700));
  std::unique_ptr<ObjectCache> cache(new ObjectCache(std::move(options)));
  BILLOW_TRY_VOID(remove_tree(cache->options_.directory + "/arriving"));
  BILLOW_TRY_VOID(make_directories(cache->options_.directory + "/arriving", 0700));
  cache->load();
  return cache;
}

void ObjectCache::load() {
  const auto each = [&](const std::string& directory,
                        const std::function<void(const std::string&)>& fn) {
    DIR* dir = ::opendir(directory.c_str());
    if (!dir)
      return;
    while (const dirent* item = ::readdir(dir))
      if (item->d_name[0] != '.')
        fn(item->d_name);
    ::closedir(dir);
  };
  each(options_.directory + "/objects", [&](const std::string& name) {
    struct stat info {};
    if (::lstat(kept_path(name).c_str(), &info) != 0)
      return;
    kept_[name] = {static_cast<std::uint64_t>(info.st_size), nanoseconds_of(info.st_mtim),
                   nanoseconds_of(info.st_atim)};
    bytes_ += static_cast<std::uint64_t>(info.st_size);
  });
  // For each name at a source: the digest and the modification time that the file must still have.
  each(options_.directory + "/keys", [&](const std::string& name) {
    const std::string path = options_.directory + "/keys/" + name;
    const auto text = read_file(path, 256);
    const auto parts = text ? split(trim(*text), ' ') : std::vector<std::string>();
    const auto kept = parts.size() == 2 ? kept_.find(parts[0]) : kept_.end();
    if (kept != kept_.end() && parts[1] == fmt::format("{}", kept->second.mtime_ns))
      by_key_[name] = parts[0];
    else
      ::unlink(path.c_str());
  });
}

std::uint64_t ObjectCache::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

// Checks the modification time: a job that runs as the agent's user could have modified the file.
bool ObjectCache::still_good(const std::string& digest) {
  const auto kept = kept_.find(digest);
  if (kept == kept_.end())
    return false;
  struct stat info {};
  if (::lstat(kept_path(digest).c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
      static_cast<std::uint64_t>(info.st_size) == kept->second.size &&
      nanoseconds_of(info.st_mtim) == kept->second.mtime_ns) {
    kept->second.used_ns = system_clock().wall().ns;
    const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
    ::utimensat(AT_FDCWD, kept_path(digest).c_str(), times, 0);
    return true;
  }
  ::unlink(kept_path(digest).c_str());
  bytes_ -= std::min(bytes_, kept->second.size);
  kept_.erase(kept);
  return false;
}

// False: objects in use leave too little space.
bool ObjectCache::free_space(std::uint64_t bytes) {
  if (bytes > options_.bytes_max)
    return false;
  remove_unused(options_.bytes_max - bytes);
  return bytes_ + bytes <= options_.bytes_max;
}

void ObjectCache::forget_unused() {
  std::lock_guard lock(mutex_);
  remove_unused(0);
}

void ObjectCache::remove_unused(std::uint64_t down_to) {
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (const auto& [digest, kept] : kept_)
    order.emplace_back(kept.used_ns, digest);
  std::sort(order.begin(), order.end());
  for (const auto& [used, digest] : order) {
    if (bytes_ <= down_to)
      return;
    struct stat info {};
    if (::lstat(kept_path(digest).c_str(), &info) == 0 && info.st_nlink > 1)
      continue;  // a job's directory links to it
    ::unlink(kept_path(digest).c_str());
    bytes_ -= std::min(bytes_, kept_[digest].size);
    kept_.erase(digest);
  }
}

// The path of a file with the object's content. If the cache has no space for it, the file stays in
// the incoming directory and the caller removes it.
Result<std::string> ObjectCache::fetch(const s3::Objects& objects,
                                       const Asked& asked,
                                       const s3::Object& object,
                                       const std::string& key) {
  std::string arriving = options_.directory + "/arriving/" + hex(random_bytes(12));
  const Fd fd(::open(arriving.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd)
    return fail_errno(arriving, errno);
  auto fetched = objects.read(asked.place, object, fd.get());
  Result<std::string> digest =
      fetched ? digest_of(fd.get()) : Result<std::string>(pass(fetched.error()));
  if (!digest || ::fchmod(fd.get(), 0444) != 0) {
    ::unlink(arriving.c_str());
    return digest ? Result<std::string>(fail_errno(arriving, errno)) : digest;
  }
  struct stat info {};
  ::fstat(fd.get(), &info);
  std::lock_guard lock(mutex_);
  if (!still_good(*digest)) {
    if (object.tag.empty() || !free_space(object.size))
      return arriving;
    if (::rename(arriving.c_str(), kept_path(*digest).c_str()) != 0)
      return arriving;
    kept_[*digest] = {object.size, nanoseconds_of(info.st_mtim), system_clock().wall().ns};
    bytes_ += object.size;
  } else {
    ::unlink(arriving.c_str());
  }
  if (!object.tag.empty()) {
    by_key_[key] = *digest;
    (void)write_file_atomic(options_.directory + "/keys/" + key,
                            fmt::format("{} {}\n", *digest, kept_[*digest].mtime_ns), 0600);
  }
  return kept_path(*digest);
}

Result<std::string> ObjectCache::get(const s3::Objects& objects,
                                     const Asked& asked,
                                     const s3::Object& object,
                                     Brought& brought) {
  // The key is everything that identifies the content: its location and what the source reports.
  const std::string key = sha256_hex(fmt::format(
      "{}\n{}\n{}\n{}\n{}",
      asked.place.s3 ? asked.access.endpoint + "\n" + asked.access.region : "",
      asked.place.s3 ? asked.place.bucket : asked.place.url, object.key, object.tag, object.size));
  {
    std::unique_lock lock(mutex_);
    fetched_.wait(lock, [&] { return !fetching_.contains(key); });
    if (const auto known = by_key_.find(key); known != by_key_.end() && still_good(known->second))
      return kept_path(known->second);
    by_key_.erase(key);
    fetching_.insert(key);
  }
  auto path = fetch(objects, asked, object, key);
  std::lock_guard lock(mutex_);
  fetching_.erase(key);
  fetched_.notify_all();
  if (path)
    brought.fetched_bytes += object.size;
  return path;
}

Result<ObjectCache::Brought> ObjectCache::bring(const Asked& asked) {
  const s3::Objects objects(asked.access, {}, asked.caller);
  const auto list = BILLOW_TRY(objects.list(asked.place));
  Brought brought;
  std::mutex counting;
  BILLOW_TRY_VOID(s3::in_parallel(list.size(), s3::connections, [&](std::size_t i) -> Status {
    const s3::Object& object = list[i];
    Brought one;
    const std::string whole = object.name.empty() ? asked.path : asked.path + "/" + object.name;
    const auto slash = whole.rfind('/');
    const Fd directory = BILLOW_TRY(directory_below(
        asked.root, slash == std::string::npos ? "" : whole.substr(0, slash), asked.owner));
    const std::string name = slash == std::string::npos ? whole : whole.substr(slash + 1);
    Status linked;
    // It may be evicted between the lookup and the link; then it is fetched again.
    for (int attempt = 1; attempt <= 3; ++attempt) {
      const std::string file = BILLOW_TRY(get(objects, asked, object, one));
      if (asked.own_copies) {
        ::unlinkat(directory.get(), name.c_str(), 0);
        linked = copy_into(directory.get(), name, file);
      } else {
        linked = link_into(directory.get(), name, file);
      }
      if (file.starts_with(options_.directory + "/arriving/"))
        ::unlink(file.c_str());
      if (linked)
        break;
    }
    BILLOW_TRY_VOID(linked);
    std::lock_guard lock(counting);
    brought.files += 1;
    brought.bytes += object.size;
    brought.fetched_bytes += one.fetched_bytes;
    return {};
  }));
  return brought;
}

}  // namespace billow::agent
