// What the jobs of each project have left in this node's caches, and its leaving when the project's
// data may not be here any more.
//
// A start writes down, by project, which trees of files and environments it brings and whether it
// takes objects from elsewhere. Now and then the head is asked which of those projects have been
// kept to other places since: what they left goes, with their cache directory, but for what another
// project's jobs brought as well. Asked by the node, so that one that was away when a project was
// kept to fewer places hears of it when it is back; and only where there is something to ask about.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/content/content_fetch.h"
#include "agent/content/object_cache.h"
#include "base/clock.h"
#include "core/wire/agent_v1.h"
#include "files/store.h"
#include "net/loop.h"
#include "net/workers.h"

namespace billow::agent {

// Before anything of it is brought.
Status note_residue(const std::string& data_dir, const wire::agent_v1::Start& start);
// The projects that something was noted of.
std::vector<std::string> residue_projects(const std::string& data_dir);

struct CachePlaces {
  std::string data_dir, work_dir;
  files::Store& store;
  ObjectCache& objects;
};
// Takes away what jobs of these projects left here; an error leaves what could not be removed
// noted, so that it is tried again.
Status remove_residue(const CachePlaces& places, const std::vector<std::string>& projects);

class ResidueWatch {
 public:
  struct Options {
    std::function<ContentSource()> head;  // both asked on the loop
    std::function<std::string()> node;    // what this node is called
    Duration every = minutes(2);
  };
  ResidueWatch(net::Loop& loop, CachePlaces places, Options options);
  ~ResidueWatch();

 private:
  void look();

  CachePlaces places_;
  Options options_;
  bool looking_ = false;
  std::unique_ptr<net::Workers> workers_;
  net::Timer timer_;
};

}  // namespace billow::agent
