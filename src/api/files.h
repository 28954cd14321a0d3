// The routes of files that follow jobs, and what they need of the head beside Host: a head that keeps no files is no FilesHost, and
// says so to whoever asks.
#pragma once

#include <string>

#include "api/call.h"
#include "files/store.h"

namespace billow::api {

class FilesHost {
 public:
  virtual ~FilesHost() = default;
  virtual billow::files::Store& files() = 0;
  virtual std::string outputs_dir() const = 0;  // which tree each job left
};

namespace files {
void add_tree(CallPtr call);
void get_tree(CallPtr call);
void add_pack(CallPtr call);
void get_pieces(CallPtr call);
void set_outputs(CallPtr call);
void outputs(CallPtr call);
}  // namespace files

}  // namespace billow::api
