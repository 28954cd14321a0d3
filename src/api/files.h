// The routes of uploaded files, and who may use them.
#pragma once

#include <string>

#include "api/call.h"

namespace billow::api {

namespace files {
void add_tree(CallPtr call);
void get_tree(CallPtr call);
void add_pack(CallPtr call);
void open_door(CallPtr call);
void get_pieces(CallPtr call);
void set_outputs(CallPtr call);
void outputs(CallPtr call);
void copy(CallPtr call);
void residency(CallPtr call);
// Whether the caller may start a job with the files that its environment names. Files that were
// never uploaded and files of others are refused with the same answer. If allowed, the project's
// members may use the files from then on.
Status may_use(const Call& call, const Environment& env, const std::string& project);
// The same for a tree by its digest.
Status may_give(const Call& call, const Sha256& digest, const std::string& project);
}  // namespace files

}  // namespace billow::api
