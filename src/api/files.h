// The routes of files that follow jobs, and what they need of the head beside Host: a head that
// keeps no files is no FilesHost, and says so to whoever asks.
#pragma once

#include <string>

#include "api/call.h"
#include "core/wire/copy.h"
#include "files/store.h"

namespace billow::api {

class FilesHost {
 public:
  virtual ~FilesHost() = default;
  virtual billow::files::Store& files() = 0;
  virtual std::string outputs_dir() const = 0;  // which tree each job left
  // Into or out of a running job's directory, by its node's agent; with the digest of what came
  // out.
  virtual void copy_files(NodeId node,
                          wire::agent_v1::CopyFiles request,
                          std::function<void(Result<std::string>)> done) = 0;
};

namespace files {
void add_tree(CallPtr call);
void get_tree(CallPtr call);
void add_pack(CallPtr call);
void get_pieces(CallPtr call);
void set_outputs(CallPtr call);
void outputs(CallPtr call);
void copy(CallPtr call);
void residency(CallPtr call);
// Whether the caller may have a job started with the files its environment names. Files that were
// never uploaded here are refused as well as those that are somebody else's, in the same words. The
// project's members may have them from then on.
Status may_use(const Call& call, const Environment& env, const std::string& project);
// The same for a tree by its digest.
Status may_give(const Call& call, const Sha256& digest, const std::string& project);
}  // namespace files

}  // namespace billow::api
