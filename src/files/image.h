// A directory tree as one compressed image, named by its content: the format of environments.
//
// An image is itself a small tree of files (files/tree.h), and is uploaded, deduplicated, fetched
// once per node and resumed like any other: `0-manifest` lists its entries, `blocks/N` hold the
// content of its files one after the other, each block compressed separately. A new directory
// starts a new block if the current one is large enough, so that environments with the same package
// share its blocks.
//
// Images are not trusted: paths must be plain and relative, no entry may be below a link, and no
// block may unpack to more than its size in the manifest. Links may point anywhere (for example to
// an installed interpreter), but nothing is ever written through one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "files/tree.h"

namespace billow::files {

inline constexpr std::size_t image_entries_max = 2'000'000;
inline constexpr std::uint64_t image_bytes_max = 256ull << 30;
inline constexpr std::size_t image_manifest_bytes_max = 512u << 20;
// Of content: even incompressible content fits into one piece.
inline constexpr std::size_t image_block_bytes = (4u << 20) - (64u << 10);
inline constexpr const char* image_manifest_name = "0-manifest";

struct ImageEntry {
  std::string path;
  Kind kind = Kind::file;
  std::uint32_t mode = 0644;
  std::uint64_t size = 0;
  // Kept, because Python recompiles sources that are newer than their compiled form.
  std::int64_t modified_ns = 0;
  std::string target;
  bool operator==(const ImageEntry&) const = default;
};

struct ImageManifest {
  std::string place;  // where it is mounted: where it was captured; "/" for a root file system
  std::map<std::string, std::string> variables;  // for jobs in it, unless they set them
  std::vector<std::string> programs;  // directories put first in PATH, relative to the place
  // Of a root file system from an OCI image: the prefix of the command, and the working directory.
  std::vector<std::string> command;
  std::string directory;
  std::vector<std::uint32_t> blocks;  // sizes of their content
  std::vector<ImageEntry> entries;
  std::uint64_t bytes() const;
};
std::string encode_manifest(const ImageManifest& manifest);  // compressed
Result<ImageManifest> decode_manifest(std::string_view bytes);

struct ImageSource {
  std::string directory;  // the directory to capture
  std::string place;      // where it will be mounted
  std::map<std::string, std::string> variables;
  std::vector<std::string> programs;
  std::vector<std::string> command;
  std::string start_directory;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};
struct WrittenImage {
  std::uint64_t bytes = 0, stored_bytes = 0;
  std::size_t files = 0;
  std::vector<std::string> left_out;  // sockets, devices, unreadable files
};
// Writes the image of a directory into another, empty one.
Result<WrittenImage> write_image(const ImageSource& source, const std::string& into);

// Unpacks an image into a new directory. Its files arrive one after the other, in the order of its
// tree.
class ImageReader {
 public:
  explicit ImageReader(std::string into) : into_(std::move(into)) {}
  ~ImageReader();
  ImageReader(const ImageReader&) = delete;
  Status take(std::string_view name, std::string_view content);  // whole files
  // Checks that every file is complete, and sets permissions.
  Status finish();
  const ImageManifest& manifest() const { return manifest_; }

 private:
  Status make_entries();
  Status write_content(std::string_view bytes);
  Status next_file();
  Status close_file();
  std::string into_;
  ImageManifest manifest_;
  bool known_ = false;
  std::size_t block_ = 0, entry_ = 0;
  int file_ = -1;
  std::uint64_t left_ = 0;  // of the file being written
};

}  // namespace billow::files
