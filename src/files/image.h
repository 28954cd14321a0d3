// A directory tree as one compressed image, named by its content: what a saved environment is.
//
// An image is itself a small tree of files (files/tree.h), and so is uploaded, kept, deduplicated,
// fetched once per node and resumed like any other: `0-manifest` lists what is in it, `blocks/N`
// hold the content of its files one after the other, each block compressed by itself. Blocks begin
// with a file wherever a directory begins and enough has come together, so that two environments
// that share a package share its blocks.
//
// An image from elsewhere is not believed: paths are plain and relative, nothing lies below a link,
// a block is as large as the manifest says and no more is unpacked than that. Links may lead
// anywhere (an interpreter is linked from where it is installed); nothing is ever written through
// one.
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
inline constexpr std::size_t image_block_bytes =
    (4u << 20) - (64u << 10);  // of content: also what does not compress fits one piece
inline constexpr const char* image_manifest_name = "0-manifest";

struct ImageEntry {
  std::string path;
  Kind kind = Kind::file;
  std::uint32_t mode = 0644;
  std::uint64_t size = 0;
  std::int64_t modified_ns =
      0;  // kept: Python compiles again whatever is newer than its compiled form
  std::string target;
  bool operator==(const ImageEntry&) const = default;
};

struct ImageManifest {
  std::string place;  // where it is seen: where it was captured; "/" for a root file system
  std::map<std::string, std::string> variables;  // that a job in it gets, unless it has its own
  std::vector<std::string>
      programs;  // directories put before the others of PATH, relative to the place
  std::vector<std::string>
      command;            // of a root file system out of an image: what is put before the job's own
  std::string directory;  // …and where it starts
  std::vector<std::uint32_t> blocks;  // sizes of their content
  std::vector<ImageEntry> entries;
  std::uint64_t bytes() const;
};
std::string encode_manifest(const ImageManifest& manifest);  // compressed
Result<ImageManifest> decode_manifest(std::string_view bytes);

struct ImageSource {
  std::string directory;  // what is captured
  std::string place;      // where it will be seen
  std::map<std::string, std::string> variables;
  std::vector<std::string> programs;
  std::vector<std::string> command;
  std::string start_directory;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};
struct WrittenImage {
  std::uint64_t bytes = 0, stored_bytes = 0;
  std::size_t files = 0;
  std::vector<std::string> left_out;  // sockets, devices, what could not be read
};
// Writes the image of a directory into another, which is empty.
Result<WrittenImage> write_image(const ImageSource& source, const std::string& into);

// Unpacks an image whose files come one after the other, as they stand in its tree, into a
// directory that is made.
class ImageReader {
 public:
  explicit ImageReader(std::string into) : into_(std::move(into)) {}
  ~ImageReader();
  ImageReader(const ImageReader&) = delete;
  Status take(std::string_view name, std::string_view content);  // whole files
  // All has come: every file is complete. Permissions are set last.
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
