// Whose room is made next. Bringing an image can take as long as a server far away likes, so no
// user's wishes may stand in everybody's way: each user has a part of the places at most, and a
// free place goes to whoever has the fewest and has waited longest.
//
// Two tasks that want the same thing do not bring it twice: the second waits, without a place,
// until it is here. Pure.
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
    std::size_t running_max = 1;  // at once, of everybody
    std::size_t per_user_max = 1;
    std::size_t waiting_max = 4096;  // of one user
  };
  struct Item {
    TaskId task;
    std::uint32_t user = 0;
    std::string what;  // an image's name, an environment's digest
  };
  explicit FairQueue(Options options) : options_(options) {}

  Status add(Item item);
  // Begins one: to be told of with `ended`.
  std::optional<Item> next();
  // `here`: what it wanted lies here now, and several tasks may take it up at once.
  void ended(const Item& item, bool here);
  void remove(TaskId task);  // one that waits
  std::size_t running() const { return running_; }

 private:
  struct User {
    std::deque<Item> waiting;
    std::size_t running = 0;
    std::uint64_t served = 0;  // when it last was, in turns
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
