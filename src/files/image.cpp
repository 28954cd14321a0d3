#include "files/image.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "base/file.h"
#include "base/text.h"

namespace billow::files {
namespace {

constexpr std::string_view magic = "billow-image-1\n";
constexpr std::size_t text_bytes_max = 1 << 20;

struct Writer {
  std::string out;
  // Seven bits per byte: most numbers are small.
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
  }
  void text(std::string_view s) {
    number(s.size());
    out += s;
  }
};
struct Reader {
  std::string_view data;
  bool ok = true;
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !data.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(data.front());
      data.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80)
        return value;
    }
    ok = false;
    return 0;
  }
  std::string text(std::size_t max = text_bytes_max) {
    const std::uint64_t size = number();
    if (size > max || size > data.size()) {
      ok = false;
      return {};
    }
    std::string out(data.substr(0, size));
    data.remove_prefix(size);
    return out;
  }
};

std::unexpected<Error> refuse(std::string_view path, std::string_view why) {
  std::string shown(path.substr(0, 200));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 32 || c == 127)
      c = '?';
  return fail(Code::invalid, fmt::format("this environment is rejected: \"{}\" {}", shown, why),
              "save it again");
}

Status check_plain(std::string_view path) {
  if (path.empty() || path.size() > 4096 || path.front() == '/' ||
      path.find('\0') != std::string_view::npos)
    return refuse(path, "is not a plain relative path");
  for (const std::string& name : split(path, '/'))
    if (name.empty() || name == "." || name == ".." || name.size() > 255)
      return refuse(path, "is not a plain relative path");
  return {};
}

std::string compressed(std::string_view bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}
// Never more than `size_max`, whatever size the data declares.
Result<std::string> expanded(std::string_view bytes, std::size_t size_max, std::string_view what) {
  const unsigned long long claims = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (claims == ZSTD_CONTENTSIZE_ERROR || claims == ZSTD_CONTENTSIZE_UNKNOWN)
    return refuse(what, "is not compressed correctly");
  if (claims > size_max)
    return refuse(what, fmt::format("would unpack to {}; the limit is {}", format_bytes(claims),
                                    format_bytes(size_max)));
  std::string out(static_cast<std::size_t>(claims), '\0');
  const std::size_t n = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(n) || n != out.size())
    return refuse(what, "is damaged");
  return out;
}

}  // namespace

std::uint64_t ImageManifest::bytes() const {
  std::uint64_t sum = 0;
  for (const ImageEntry& e : entries)
    sum += e.size;
  return sum;
}

std::string encode_manifest(const ImageManifest& m) {
  Writer w;
  w.out = magic;
  w.text(m.place);
  w.number(m.variables.size());
  for (const auto& [name, value] : m.variables) {
    w.text(name);
    w.text(value);
  }
  for (const auto* list : {&m.programs, &m.command}) {
    w.number(list->size());
    for (const std::string& item : *list)
      w.text(item);
  }
  w.text(m.directory);
  w.number(m.blocks.size());
  for (const std::uint32_t size : m.blocks)
    w.number(size);
  w.number(m.entries.size());
  for (const ImageEntry& e : m.entries) {
    w.number(static_cast<unsigned char>(e.kind));
    w.number(e.mode);
    w.text(e.path);
    if (e.kind == Kind::file) {
      w.number(e.size);
      w.number(static_cast<std::uint64_t>(e.modified_ns));
    }
    if (e.kind == Kind::link)
      w.text(e.target);
  }
  return compressed(w.out);
}

namespace {

void read_settings(Reader& r, ImageManifest& m) {
  m.place = r.text();
  for (std::uint64_t n = r.number(); r.ok && n > 0; --n) {
    std::string name = r.text();
    m.variables[std::move(name)] = r.text();
  }
  for (auto* list : {&m.programs, &m.command})
    for (std::uint64_t n = r.number(); r.ok && n > 0; --n)
      list->push_back(r.text());
  m.directory = r.text();
}

Status read_blocks(Reader& r, ImageManifest& m) {
  for (std::uint64_t n = r.number(); r.ok && n > 0; --n) {
    const std::uint64_t size = r.number();
    if (size == 0 || size > image_block_bytes)
      return refuse("a block", "has an invalid size");
    m.blocks.push_back(static_cast<std::uint32_t>(size));
  }
  return {};
}

// What depends on the kind of an entry, after its mode and path.
Status read_details(Reader& r, std::uint64_t kind, ImageEntry& e) {
  switch (kind) {
    case 'd':
      e.kind = Kind::directory;
      return {};
    case 'f':
      e.kind = Kind::file;
      e.size = r.number();
      e.modified_ns = static_cast<std::int64_t>(r.number());
      return {};
    case 'l':
      e.kind = Kind::link;
      e.target = r.text(4096);
      return {};
    default:
      return refuse(e.path, "is of an unknown kind");
  }
}

Status read_entries(Reader& r, ImageManifest& m) {
  const std::uint64_t count = r.number();
  if (count > image_entries_max)
    return refuse(m.place, fmt::format("has {} files; the limit is {}", count, image_entries_max));
  std::unordered_set<std::string> directories;
  std::uint64_t files = 0;
  m.entries.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(count, r.data.size())));
  for (std::uint64_t n = count; r.ok && n > 0; --n) {
    ImageEntry e;
    const std::uint64_t kind = r.number();
    e.mode = static_cast<std::uint32_t>(r.number() & 0777);
    e.path = r.text(4096);
    if (!r.ok)
      break;
    BILLOW_TRY_VOID(check_plain(e.path));
    if (!m.entries.empty() && e.path == m.entries.back().path)
      return refuse(e.path, "appears twice");
    if (const auto slash = e.path.rfind('/');
        slash != std::string::npos && !directories.contains(e.path.substr(0, slash)))
      return refuse(e.path, "is not in a directory of the environment");
    BILLOW_TRY_VOID(read_details(r, kind, e));
    if (e.kind == Kind::directory)
      directories.insert(e.path);
    files += e.size;
    if (e.size > image_bytes_max || files > image_bytes_max)
      return refuse(e.path, fmt::format("exceeds the limit of {} for an environment",
                                        format_bytes(image_bytes_max)));
    m.entries.push_back(std::move(e));
  }
  return {};
}

Status check_places(const ImageManifest& m) {
  if (m.place.empty() || m.place.front() != '/')
    return refuse(m.place, "is not a valid place for an environment");
  for (const std::string& name : split(m.place.substr(1), '/'))
    if (name == "." || name == ".." || (name.empty() && m.place != "/"))
      return refuse(m.place, "is not a valid place for an environment");
  for (const std::string& p : m.programs)
    if (!p.empty())
      BILLOW_TRY_VOID(check_plain(p));
  return {};
}

}  // namespace

Result<ImageManifest> decode_manifest(std::string_view bytes) {
  const std::string raw =
      BILLOW_TRY(expanded(bytes, image_manifest_bytes_max, image_manifest_name));
  if (!raw.starts_with(magic))
    return refuse(image_manifest_name, "has a version that this program does not know");
  Reader r{std::string_view(raw).substr(magic.size())};
  ImageManifest m;
  read_settings(r, m);
  BILLOW_TRY_VOID(read_blocks(r, m));
  BILLOW_TRY_VOID(read_entries(r, m));
  if (!r.ok || !r.data.empty())
    return refuse(image_manifest_name, "is damaged");
  std::uint64_t content = 0;
  for (const std::uint32_t size : m.blocks)
    content += size;
  if (content != m.bytes())
    return refuse(image_manifest_name, "does not match its blocks");
  BILLOW_TRY_VOID(check_places(m));
  return m;
}

ImageReader::~ImageReader() {
  if (file_ >= 0)
    ::close(file_);
}

Status ImageReader::take(std::string_view name, std::string_view content) {
  if (!known_) {
    if (name != image_manifest_name)
      return refuse(name, "comes before the manifest");
    manifest_ = BILLOW_TRY(decode_manifest(content));
    known_ = true;
    return make_entries();
  }
  if (!name.starts_with("blocks/"))
    return name == "blocks" ? Status{} : refuse(name, "does not belong to an environment");
  if (block_ >= manifest_.blocks.size())
    return refuse(name, "is not in the manifest");
  const std::uint32_t size = manifest_.blocks[block_++];
  const std::string bytes = BILLOW_TRY(expanded(content, size, name));
  if (bytes.size() != size)
    return refuse(name, "has another size than in the manifest");
  return write_content(bytes);
}

// Directories are private until all files are complete. Each one is created here, so no path leads
// through anything that existed before.
Status ImageReader::make_entries() {
  BILLOW_TRY_VOID(make_directories(into_, 0700));
  for (const ImageEntry& e : manifest_.entries) {
    const std::string path = into_ + "/" + e.path;
    if (e.kind == Kind::directory && ::mkdir(path.c_str(), 0700) != 0)
      return fail_errno(path, errno);
    if (e.kind == Kind::link && ::symlink(e.target.c_str(), path.c_str()) != 0)
      return fail_errno(path, errno);
  }
  return next_file();
}

// Opens the next file with content; empty files are created on the way.
Status ImageReader::next_file() {
  for (; entry_ < manifest_.entries.size(); ++entry_) {
    const ImageEntry& e = manifest_.entries[entry_];
    if (e.kind != Kind::file)
      continue;
    const std::string path = into_ + "/" + e.path;
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file_ < 0)
      return fail_errno(path, errno);
    left_ = e.size;
    if (left_ > 0)
      return {};
    BILLOW_TRY_VOID(close_file());
  }
  return {};
}

Status ImageReader::close_file() {
  const ImageEntry& e = manifest_.entries[entry_];
  const timespec times[2] = {{0, UTIME_OMIT},
                             {e.modified_ns / 1'000'000'000, e.modified_ns % 1'000'000'000}};
  // The copy belongs to the user of the environment, who may at least read and write it.
  const bool bad = ::fchmod(file_, (e.mode | 0600) & 0777) != 0 || ::futimens(file_, times) != 0;
  const int error = errno;
  ::close(std::exchange(file_, -1));
  if (bad)
    return fail_errno(e.path, error);
  return {};
}

Status ImageReader::write_content(std::string_view bytes) {
  while (!bytes.empty()) {
    if (file_ < 0)
      return refuse("a block", "exceeds the files");
    const std::string_view part =
        bytes.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size())));
    BILLOW_TRY_VOID(write_all(file_, part));
    bytes.remove_prefix(part.size());
    left_ -= part.size();
    if (left_ > 0)
      continue;
    BILLOW_TRY_VOID(close_file());
    ++entry_;
    BILLOW_TRY_VOID(next_file());
  }
  return {};
}

Status ImageReader::finish() {
  if (!known_ || block_ != manifest_.blocks.size() || file_ >= 0)
    return fail(Code::unavailable, "the environment is incomplete");
  for (auto e = manifest_.entries.rbegin(); e != manifest_.entries.rend(); ++e)
    if (e->kind == Kind::directory &&
        ::chmod((into_ + "/" + e->path).c_str(), (e->mode | 0700) & 0777) != 0)
      return fail_errno(e->path, errno);
  if (::chmod(into_.c_str(), 0755) != 0)
    return fail_errno(into_, errno);
  return {};
}

}  // namespace billow::files
