// The event loop of a Billow process. Everything in net, and every part that reacts to events, is
// called on the thread that runs the loop; so state behind the loop needs no locks.
//
// Invariants: only post() and stop() may be called from other threads. A callback that throws is
// logged, and the loop continues. Destroying a Handle means its callback is never called again, and
// a callback may destroy its own Handle. Handles and their owners (servers, clients, WebSockets)
// must be destroyed before their Loop.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>

#include "base/clock.h"

namespace billow::net {

// Owns a timer, a signal subscription or a watch; destroying it (or cancel()) ends the callbacks.
class Handle {
 public:
  struct State {
    virtual ~State() = default;
    virtual void cancel() = 0;
  };
  Handle() = default;
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Handle(Handle&&) noexcept = default;
  Handle& operator=(Handle&& o) noexcept {
    if (this != &o) {
      cancel();
      state_ = std::move(o.state_);
    }
    return *this;
  }
  ~Handle() { cancel(); }
  void cancel() {
    if (auto state = std::move(state_))
      state->cancel();
    state_ = nullptr;
  }
  explicit operator bool() const { return state_ != nullptr; }

 private:
  std::shared_ptr<State> state_;
};
using Timer = Handle;
using Watch = Handle;

// Readiness of one descriptor in both directions, level-triggered: the callback repeats while the
// condition holds. The caller owns the descriptor, which must outlive the watch. At most one watch
// per descriptor.
class FdWatch {
 public:
  ~FdWatch();
  void want(bool read, bool write);

  struct Impl;  // opaque

 private:
  friend class Loop;
  explicit FdWatch(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;

  void run();   // until stop()
  void stop();  // from any thread or callback
  // Runs until the condition holds (true) or the time has passed (false). For tools and tests.
  bool run_until(const std::function<bool()>& condition, Duration at_most);

  void post(std::function<void()> fn);  // from any thread; in order
  [[nodiscard]] Timer after(Duration delay, std::function<void()> fn);
  [[nodiscard]] Timer every(Duration period,
                            std::function<void()> fn);  // a late tick is skipped, not repeated
  [[nodiscard]] Watch on_signal(std::initializer_list<int> signals, std::function<void(int)> fn);
  [[nodiscard]] Watch on_readable(int fd, std::function<void()> fn);
  [[nodiscard]] Watch on_writable(int fd, std::function<void()> fn);
  [[nodiscard]] std::unique_ptr<FdWatch> watch(
      int fd, std::function<void(bool readable, bool writable)> fn);

  // Keeps an object that ends by itself, such as a connection that waits for its peer, until
  // let_go() or the end of the loop.
  void keep(std::shared_ptr<void> object);
  void let_go(const void* object);  // it is destroyed after the current callback

  SteadyTime steady() const { return system_clock().steady(); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace billow::net
