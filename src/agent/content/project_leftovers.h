// Removes a project's data from this node's caches when the project may no longer use this node.
//
// Each start records, by project, which file trees and environments it fetches and whether it uses
// objects from outside. The node regularly asks the head which of these projects have been
// restricted to other places since, and removes what they left, together with their cache
// directory, except for content that another project's jobs fetched as well. The node asks, rather
// than the head telling, so that a node that was offline learns of it later. It asks only if
// something is recorded.
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

// Called before anything is fetched for the start.
Status note_leftovers(const std::string& data_dir, const wire::agent_v1::Start& start);
// The recorded projects.
std::vector<std::string> leftover_projects(const std::string& data_dir);

struct CachePlaces {
  std::string data_dir, work_dir;
  files::Store& store;
  ObjectCache& objects;
};
// Removes what jobs of these projects left. After an error the record stays, so that the removal is
// tried again.
Status remove_leftovers(const CachePlaces& places, const std::vector<std::string>& projects);

class LeftoverWatch {
 public:
  struct Options {
    std::function<ContentSource()> head;  // both are called on the loop
    std::function<std::string()> node;    // this node's name
    Duration every = minutes(2);
  };
  LeftoverWatch(net::Loop& loop, CachePlaces places, Options options);
  ~LeftoverWatch();

 private:
  void look();

  CachePlaces places_;
  Options options_;
  bool looking_ = false;
  std::unique_ptr<net::Workers> workers_;
  net::Timer timer_;
};

}  // namespace billow::agent
