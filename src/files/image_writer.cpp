// Captures a directory: reads its files once, in the order of their paths, into blocks.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "base/file.h"
#include "base/platform.h"
#include "base/text.h"
#include "files/image.h"

namespace billow::files {
namespace {

// Below this size a new directory does not start a new block.
constexpr std::size_t block_bytes_few = 512 << 10;
constexpr std::size_t left_out_max = 20;

class Capture {
 public:
  Capture(const ImageSource& source, std::string into)
      : source_(source), into_(std::move(into)), context_(ZSTD_createCCtx()) {}
  ~Capture() { ZSTD_freeCCtx(context_); }

  Result<WrittenImage> run() {
    manifest_.place = source_.place;
    manifest_.variables = source_.variables;
    manifest_.programs = source_.programs;
    manifest_.command = source_.command;
    manifest_.directory = source_.start_directory;
    struct stat top {};
    if (::stat(source_.directory.c_str(), &top) != 0)
      return fail_errno(source_.directory, errno);
    if (!S_ISDIR(top.st_mode))
      return fail(Code::invalid, source_.directory + " is not a directory");
    device_ = top.st_dev;
    BILLOW_TRY_VOID(list(""));
    total_ = manifest_.bytes();
    if (total_ > image_bytes_max)
      return fail(Code::too_large, fmt::format("{} exceeds the limit of {} for an environment",
                                               source_.directory, format_bytes(image_bytes_max)));
    BILLOW_TRY_VOID(make_directories(into_ + "/blocks"));
    for (ImageEntry& e : manifest_.entries)
      if (e.kind == Kind::file)
        BILLOW_TRY_VOID(add(e));
    BILLOW_TRY_VOID(flush());
    const std::string text = encode_manifest(manifest_);
    BILLOW_TRY_VOID(write_file_atomic(fmt::format("{}/{}", into_, image_manifest_name), text));
    out_.stored_bytes += text.size();
    out_.bytes = total_;
    out_.files = manifest_.entries.size();
    return out_;
  }

 private:
  void leave_out(const std::string& path, const char* why) {
    if (out_.left_out.size() < left_out_max)
      out_.left_out.push_back(fmt::format("{} ({})", path, why));
  }

  Status list(const std::string& relative) {
    const std::string full =
        relative.empty() ? source_.directory : source_.directory + "/" + relative;
    DIR* dir = ::opendir(full.c_str());
    if (!dir)
      return fail_errno(full, errno);
    std::vector<std::string> names;
    while (const dirent* item = ::readdir(dir))
      if (const std::string_view name = item->d_name; name != "." && name != "..")
        names.emplace_back(name);
    ::closedir(dir);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      const std::string path = relative.empty() ? name : relative + "/" + name,
                        at = source_.directory + "/" + path;
      struct stat info {};
      if (::lstat(at.c_str(), &info) != 0)
        continue;  // removed in the meantime
      ImageEntry e{.path = path, .mode = info.st_mode & 0777u, .target = {}};
      if (S_ISDIR(info.st_mode)) {
        e.kind = Kind::directory;
        // /proc, /sys, or a disk that happens to be mounted.
        const bool elsewhere = info.st_dev != device_;
        manifest_.entries.push_back(std::move(e));
        if (elsewhere)
          leave_out(path, "another file system");
        else
          BILLOW_TRY_VOID(list(path));
      } else if (S_ISLNK(info.st_mode)) {
        char target[4096];
        const ssize_t n = ::readlink(at.c_str(), target, sizeof target);
        if (n <= 0)
          continue;
        e.kind = Kind::link;
        e.target.assign(target, static_cast<std::size_t>(n));
        manifest_.entries.push_back(std::move(e));
      } else if (S_ISREG(info.st_mode)) {
        if (::access(at.c_str(), R_OK) != 0) {
          leave_out(path, "not readable");
          continue;
        }
        e.size = static_cast<std::uint64_t>(info.st_size);
        e.modified_ns = platform::modified_ns(info);
        manifest_.entries.push_back(std::move(e));
      } else {
        leave_out(path, "a socket, a pipe or a device");
      }
      if (manifest_.entries.size() > image_entries_max)
        return fail(Code::too_large,
                    fmt::format("{} has more than {} files", source_.directory, image_entries_max));
    }
    return {};
  }

  Status add(const ImageEntry& e) {
    const std::string directory = e.path.substr(
        0, e.path.find('/', e.path.find('/') == std::string::npos ? 0 : e.path.find('/') + 1));
    if ((block_.size() >= block_bytes_few && directory != directory_) ||
        e.size >= image_block_bytes)
      BILLOW_TRY_VOID(flush());
    directory_ = directory;
    const std::string at = source_.directory + "/" + e.path;
    const Fd fd(::open(at.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd)
      return fail_errno(at, errno);
    for (std::uint64_t left = e.size; left > 0;) {
      const std::size_t before = block_.size(),
                        want = static_cast<std::size_t>(
                            std::min<std::uint64_t>(left, image_block_bytes - before));
      block_.resize(before + want);
      const ssize_t n = ::read(fd.get(), block_.data() + before, want);
      if (n < 0)
        return fail_errno(at, errno);
      if (n == 0)
        return fail(Code::conflict, fmt::format("{} was truncated while it was read", at),
                    "save again when no program writes to it");
      block_.resize(before + static_cast<std::size_t>(n));
      left -= static_cast<std::uint64_t>(n);
      done_ += static_cast<std::uint64_t>(n);
      if (block_.size() == image_block_bytes)
        BILLOW_TRY_VOID(flush());
    }
    if (source_.progress)
      source_.progress(done_, total_);
    return {};
  }

  Status flush() {
    if (block_.empty())
      return {};
    packed_.resize(ZSTD_compressBound(block_.size()));
    const std::size_t n = ZSTD_compressCCtx(context_, packed_.data(), packed_.size(), block_.data(),
                                            block_.size(), 3);
    if (ZSTD_isError(n))
      return fail(Code::internal, fmt::format("compress: {}", ZSTD_getErrorName(n)));
    BILLOW_TRY_VOID(
        write_file_atomic(fmt::format("{}/blocks/{:08}", into_, manifest_.blocks.size()),
                          std::string_view(packed_).substr(0, n)));
    out_.stored_bytes += n;
    manifest_.blocks.push_back(static_cast<std::uint32_t>(block_.size()));
    block_.clear();
    return {};
  }

  const ImageSource& source_;
  std::string into_;
  ZSTD_CCtx* context_;
  ImageManifest manifest_;
  WrittenImage out_;
  dev_t device_ = 0;
  std::string block_, packed_, directory_;
  std::uint64_t done_ = 0, total_ = 0;
};

}  // namespace

Result<WrittenImage> write_image(const ImageSource& source, const std::string& into) {
  return Capture(source, into).run();
}

}  // namespace billow::files
