// Long work on the loop, cut into steps: one step of one piece of work runs per turn, in rotation,
// and whatever else waits for the loop runs in between. However many pieces there are, a request
// waits for one step of one of them.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "net/loop.h"

namespace billow::net {

class Turns {
 public:
  explicit Turns(Loop& loop) : shared_(std::make_shared<Shared>(Shared{loop, {}, false})) {}

  // Calls `step` on later turns of the loop until it returns true.
  void add(std::function<bool()> step) {
    shared_->waiting.push_back(std::move(step));
    take_turn(shared_);
  }

 private:
  struct Shared {
    Loop& loop;
    std::deque<std::function<bool()>> waiting;
    bool posted = false;
  };
  static void take_turn(const std::shared_ptr<Shared>& shared) {
    if (shared->posted || shared->waiting.empty())
      return;
    shared->posted = true;
    shared->loop.post([weak = std::weak_ptr(shared)] {
      const auto own = weak.lock();
      if (!own)
        return;
      own->posted = false;
      auto step = std::move(own->waiting.front());
      own->waiting.pop_front();
      if (!step())
        own->waiting.push_back(std::move(step));
      take_turn(own);
    });
  }
  std::shared_ptr<Shared> shared_;
};

}  // namespace billow::net
