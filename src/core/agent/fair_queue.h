// Decides whose image or environment is fetched next. A fetch can take as long as a remote server
// likes, so no user may block the others: each user has a limited number of slots, and a free slot
// goes to the user with the fewest who has waited longest.
//
// Two tasks that want the same content do not fetch it twice: the second waits, without a slot,
// until it is on the node. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace billow::agent {

class FairQueue {
 public:
  struct Options {
    std::size_t running_max = 1;  // of all users
    std::size_t per_user_max = 1;
    std::size_t waiting_max = 4096;  // per user
  };
  struct Item {
    TaskId task;
    std::uint32_t user = 0;
    std::string what;  // an image's name, an environment's digest
  };
  explicit FairQueue(Options options) : options_(options) {}

  Status add(Item item);
  // Starts the next fetch; the caller reports its end with `ended`.
  std::optional<Item> next();
  // `here`: the content is on the node now, and several tasks may use it at once.
  void ended(const Item& item, bool here);
  void remove(TaskId task);  // a waiting one
  std::size_t running() const { return running_; }

 private:
  struct User {
    std::deque<Item> waiting;
    std::size_t running = 0;
    std::uint64_t served = 0;  // the turn in which it was last served
  };
  using Key = std::pair<std::uint32_t, std::string>;
  Options options_;
  std::map<std::uint32_t, User> users_;
  std::map<Key, std::size_t> bringing_;
  std::set<Key> here_;
  std::size_t running_ = 0;
  std::uint64_t turn_ = 0;
};

}  // namespace billow::agent
