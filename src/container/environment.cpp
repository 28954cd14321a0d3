#include "container/environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "container/image_store.h"
#include "core/wire/codec.h"
#include "files/image.h"
#include "files/tree.h"

namespace billow::container {
namespace {

constexpr const char* facts_file = "/environment.json";
constexpr Duration lock_patience =
    seconds(2);  // other processes hold the store's lock only briefly
constexpr Duration unpacked_patience =
    seconds(60);  // after unpacking: another process may be removing old environments

// Begins with a dot, unlike every environment's name.
std::string unpacking_lock(const std::string& store, const std::string& digest) {
  return fmt::format("{}/env/.unpacking-{}", store, digest);
}

Status receive(int fd, char* into, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::read(fd, into, size);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return fail(Code::unavailable, "the environment arrived incomplete");
    into += n;
    size -= static_cast<std::size_t>(n);
  }
  return {};
}

void trim_store(const std::string& store, std::uint64_t bytes_max, const std::string& keep) {
  struct Kept {
    timespec used;
    std::string digest;
    std::uint64_t bytes;
  };
  std::vector<Kept> all;
  std::uint64_t sum = 0;
  for (const std::string& name : names_in(store + "/env")) {
    struct stat info {};
    const std::string path = environment_dir(store, name);
    const auto facts = find_environment(store, name);
    if (!facts) {
      // An unpacking that was interrupted, unless it is still under way.
      if (const auto mine =
              name == keep ? Result<Fd>(Fd()) : try_lock(unpacking_lock(store, name), Duration{});
          mine && *mine)
        (void)remove_tree(path);
      continue;
    }
    if (::stat((path + facts_file).c_str(), &info) != 0)
      continue;
    all.push_back(
        {info.st_mtim, name, static_cast<std::uint64_t>(std::max<std::int64_t>(facts->bytes, 0))});
    sum += all.back().bytes;
  }
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const Kept& one : all) {
    if (sum <= bytes_max)
      return;
    if (one.digest == keep || in_use(store, one.digest))
      continue;
    if (remove_tree(environment_dir(store, one.digest)))
      sum -= one.bytes;
  }
}

Status unpack(int fd, const std::string& digest, files::ImageReader& reader) {
  const Sha256 wanted = BILLOW_TRY(files::parse_digest(digest));
  unsigned char head[8];
  BILLOW_TRY_VOID(receive(fd, reinterpret_cast<char*>(head), sizeof head));
  std::uint64_t size = 0;
  for (int i = 7; i >= 0; --i)
    size = size << 8 | head[i];
  if (size == 0 || size > files::tree_list_bytes_max)
    return fail(Code::invalid, "the environment's list of files is too long");
  std::string list(static_cast<std::size_t>(size), '\0');
  BILLOW_TRY_VOID(receive(fd, list.data(), list.size()));
  if (sha256(list) != wanted)
    return fail(Code::invalid, "the environment does not match its digest");
  const files::Tree tree = BILLOW_TRY(files::decode(list));
  std::string content;
  for (const files::Entry& e : tree.entries) {
    if (e.kind != files::Kind::file)
      continue;
    // The manifest is the largest file that is read as a whole.
    if (e.size > files::image_manifest_bytes_max)
      return fail(Code::invalid,
                  fmt::format("the environment is rejected: {} is too large", e.path));
    content.resize(static_cast<std::size_t>(e.size));
    std::size_t at = 0;
    for (std::size_t i = 0; i < e.pieces.size(); ++i) {
      const std::size_t bytes = files::piece_size(e, i);
      BILLOW_TRY_VOID(receive(fd, content.data() + at, bytes));
      if (sha256(std::string_view(content).substr(at, bytes)) != e.pieces[i])
        return fail(Code::invalid, "a piece of the environment does not match its digest");
      at += bytes;
    }
    BILLOW_TRY_VOID(reader.take(e.path, content));
  }
  return reader.finish();
}

}  // namespace

std::string environment_dir(const std::string& store, const std::string& digest) {
  return store + "/env/" + digest;
}

Result<Environment> find_environment(const std::string& store, const std::string& digest) {
  const std::string path = environment_dir(store, digest) + facts_file;
  // The user owns the store and may put anything there: follow no links and never block.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat its {};
  if (!fd || ::fstat(fd.get(), &its) != 0 || !S_ISREG(its.st_mode) || its.st_size > 4 << 20)
    return fail(Code::not_found, "this environment is not on this node yet");
  std::string text(static_cast<std::size_t>(its.st_size), '\0');
  if (::pread(fd.get(), text.data(), text.size(), 0) != its.st_size)
    return fail(Code::not_found, "this environment is not on this node yet");
  Environment found = BILLOW_TRY(wire::from_json_text<Environment>(text));
  (void)::futimens(fd.get(), nullptr);  // the time of last use decides what is removed first
  return found;
}

Result<std::optional<Environment>> hold_environment(const Unpacking& what) {
  BILLOW_TRY_VOID(make_directories(what.store + "/env", 0700));
  const Fd lock = BILLOW_TRY(try_lock(what.store + "/lock", lock_patience));
  if (!lock)
    return std::nullopt;
  Environment here = BILLOW_TRY(find_environment(what.store, what.digest));
  if (!what.key.empty())
    BILLOW_TRY_VOID(mark_in_use(what.store, what.key, what.digest));
  return here;
}

Result<std::optional<Environment>> unpack_environment(const Unpacking& what, int fd) {
  BILLOW_TRY_VOID(make_directories(what.store + "/env", 0700));
  // This lock is held while the content arrives. It delays neither other environments nor tasks
  // that find this one unpacked.
  const Fd unpacking = BILLOW_TRY(try_lock(unpacking_lock(what.store, what.digest), Duration{}));
  if (!unpacking)
    return std::nullopt;
  if (auto here = hold_environment(what); here || here.error().code != Code::not_found)
    return here;
  const std::string path = environment_dir(what.store, what.digest);
  (void)remove_tree(path);  // left by an interrupted unpacking
  BILLOW_TRY_VOID(make_directories(path, 0700));
  files::ImageReader reader(path + "/tree");
  if (const Status done = unpack(fd, what.digest, reader); !done) {
    (void)remove_tree(path);
    return pass(done.error());
  }
  const files::ImageManifest& m = reader.manifest();
  Environment facts{m.place,   m.variables, m.programs,
                    m.command, m.directory, static_cast<std::int64_t>(m.bytes())};
  const Fd lock = BILLOW_TRY(try_lock(what.store + "/lock", unpacked_patience));
  if (!lock) {
    (void)remove_tree(path);
    return fail(
        Code::timed_out,
        fmt::format("the environment is unpacked, but another process has held {}/lock for {}",
                    what.store, format_duration(unpacked_patience)),
        "end the process that holds it");
  }
  BILLOW_TRY_VOID(write_file_atomic(path + facts_file, wire::to_json_text(facts), 0600));
  if (!what.key.empty())
    BILLOW_TRY_VOID(mark_in_use(what.store, what.key, what.digest));
  trim_store(what.store, what.bytes_max, what.digest);
  return facts;
}

}  // namespace billow::container
