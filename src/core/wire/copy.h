// Files into and out of the directory of a job that runs, asked of its node's agent. The content
// goes by way of the head's store, as trees do; these frames, marked apart from the protocol's own,
// only say which.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/ids.h"
#include "base/result.h"

namespace billow::wire::agent_v1 {

// head → agent
struct CopyFiles {
  static constexpr const char* kind = "copy_files";
  std::uint64_t request = 0;
  TaskId task;
  std::string tree;  // digest of what is to be written there; empty: something is to be brought out
  std::string path;  // …this; empty: everything
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("request", s.request);
    v("task", s.task);
    v("tree", s.tree);
    v("path", s.path);
  }
};
// agent → head
struct FilesCopied {
  static constexpr const char* kind = "files_copied";
  std::uint64_t request = 0;
  bool began = false;  // only that it was understood: another message reports the end
  std::string tree;    // of what was brought out
  std::string error;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("request", s.request);
    v("began", s.began);
    v("tree", s.tree);
    v("error", s.error);
  }
};

using Copying = std::variant<CopyFiles, FilesCopied>;
bool is_copy_frame(std::string_view frame);
std::string encode_copy(const Copying& message);
Result<Copying> decode_copy(std::string_view frame);

}  // namespace billow::wire::agent_v1
