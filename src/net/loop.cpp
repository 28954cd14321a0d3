// The loop on Boost.Asio; no other file includes it. Asio's reactor is used for timers, signals and
// posted work. Reads and writes are plain system calls in transport.cpp, which keeps TLS, HTTP and
// WebSocket out of Asio's templates and this module's compile time at seconds.
//
// Readiness of descriptors comes from a separate set (readiness.h), which is one descriptor to
// Asio. Asio's waits are one-shot: each costs an allocation and a system call, which would be most
// of the cost of a proxied request. Here a descriptor stays armed until its watched events change,
// and all pending events are taken in one batch.
//
// A turn through Asio costs three system calls. Under load the next event comes within
// microseconds, so run() stays with the set for up to a millisecond (Poller::stay) and goes back to
// Asio for posted work, for timers that are due soon, and after that time at the latest. Timers of
// run() can be late by as much.
#include "net/loop.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <span>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "net/readiness.h"

namespace billow::net {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

std::chrono::nanoseconds chrono_of(Duration d) {
  return std::chrono::nanoseconds(d.ns);
}

// A callback must never unwind into the reactor, which would lose events it has already taken.
template <class Fn, class... Args>
void call_guarded(const char* what, Fn& fn, Args... args) {
  try {
    fn(args...);
  } catch (const std::exception& e) {
    log_error("a {} callback threw: {}", what, e.what());
  } catch (...) {
    log_error("a {} callback threw something other than std::exception", what);
  }
}

// A callback may own its own Handle, whose destructor comes back to where the callback is dropped.
template <class Fn>
void drop(Fn& fn) {
  const Fn gone = std::exchange(fn, nullptr);
}

struct TimerState : Handle::State, std::enable_shared_from_this<TimerState> {
  TimerState(asio::io_context& context, Duration p, std::function<void()> f)
      : timer(context), period(p), fn(std::move(f)) {}
  asio::steady_timer timer;
  Duration period;  // zero: once
  std::function<void()> fn;
  bool live = true;
  bool running = false;

  void start(Duration delay) {
    timer.expires_after(chrono_of(delay));
    wait();
  }
  void wait() {
    timer.async_wait([self = shared_from_this()](const error_code&) { self->fire(); });
  }
  void fire() {
    if (!live)
      return;
    if (period.ns == 0)
      live = false;
    running = true;
    call_guarded("timer", fn);
    running = false;
    if (!live)
      return drop(fn);
    const auto now = std::chrono::steady_clock::now();
    auto next = timer.expiry() + chrono_of(period);
    if (next < now)
      next = now + chrono_of(period);
    timer.expires_at(next);
    wait();
  }
  void cancel() override {
    live = false;
    timer.cancel();
    if (!running)
      drop(fn);
  }
};

struct SignalState : Handle::State, std::enable_shared_from_this<SignalState> {
  SignalState(asio::io_context& context, std::function<void(int)> f)
      : set(context), fn(std::move(f)) {}
  asio::signal_set set;
  std::function<void(int)> fn;
  bool live = true;

  void wait() {
    set.async_wait([self = shared_from_this()](const error_code& ec, int signal) {
      if (ec || !self->live)
        return;
      call_guarded("signal", self->fn, signal);
      if (self->live)
        self->wait();
    });
  }
  void cancel() override {
    live = false;
    error_code ignored;
    (void)set.clear(ignored);
    (void)set.cancel(ignored);
  }
};

// A one-directional watch as a Handle.
struct WatchState : Handle::State {
  std::unique_ptr<FdWatch> watch;
  void cancel() override { watch.reset(); }
};

}  // namespace

struct FdWatch::Impl {
  class Poller* poller = nullptr;
  int fd = -1;
  std::uint32_t slot = 0;
  Readiness::Wish interest;  // as registered in the set
  std::function<void(bool, bool)> fn;
  bool want_read = false, want_write = false;
  bool live = true;
  bool running = false;
};

class Poller {
 public:
  explicit Poller(asio::io_context& context) : set_(context) {
    const int fd = Readiness::create();
    BILLOW_CHECK(fd >= 0, "cannot create a set of descriptors");
    set_.assign(fd);
    int ends[2];
    BILLOW_CHECK(::pipe(ends) == 0, "cannot create a pipe");
    wake_read_ = Fd(ends[0]);
    wake_write_ = Fd(ends[1]);
    for (const int end : ends) {
      ::fcntl(end, F_SETFD, FD_CLOEXEC);
      ::fcntl(end, F_SETFL, O_NONBLOCK);
    }
    Readiness::set(fd, ends[0], {}, {.read = true}, wake_mark);
    arm();
  }

  // Whether run() may stay with the set; else it takes one batch at a time.
  void set_stays(bool stays) { stays_ = stays; }
  // Asio gets something to do. From any thread.
  void posted() {
    ++posts_;
    wake();
  }
  void ran_posted() { --posts_; }
  void leave() {
    leave_ = true;
    wake();
  }
  void wake() {
    if (waiting_)
      (void)!::write(wake_write_.get(), "", 1);  // a full pipe wakes, too
  }

  std::shared_ptr<FdWatch::Impl> add(int fd, std::function<void(bool, bool)> fn) {
    auto impl = std::make_shared<FdWatch::Impl>();
    impl->poller = this;
    impl->fd = fd;
    impl->fn = std::move(fn);
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(slots_.size()));
      slots_.emplace_back();
    }
    impl->slot = free_.back();
    free_.pop_back();
    slots_[impl->slot].impl = impl;
    return impl;
  }

  void remove(FdWatch::Impl& impl) {
    set(impl, {});
    Slot& slot = slots_[impl.slot];
    ++slot.generation;  // drops events of this batch that still name the slot
    slot.impl = nullptr;
    free_.push_back(impl.slot);
  }

  void set(FdWatch::Impl& impl, Readiness::Wish interest) {
    if (impl.interest == interest)
      return;
    const bool known =
        Readiness::set(set_.native_handle(), impl.fd, impl.interest, interest,
                       impl.slot | std::uint64_t{slots_[impl.slot].generation} << 32);
    BILLOW_CHECK(known, "a descriptor can be watched only once and must be pollable");
    impl.interest = interest;
  }

 private:
  static constexpr int batch_max = 256;
  struct Slot {
    std::shared_ptr<FdWatch::Impl> impl;
    std::uint32_t generation = 0;
  };

  void arm() {
    set_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code& ec) {
      if (ec)
        return;
      run();
      arm();
    });
  }

  void run() {
    Readiness::News events[batch_max];
    handle({events, taken(events, 0)});
    const auto until = std::chrono::steady_clock::now() + stay;
    while (stays_ && !leave_ && posts_ == 0 && std::chrono::steady_clock::now() < until) {
      // Another thread that posts first increments the count and then checks whether this waits.
      waiting_ = true;
      const std::size_t count = posts_ == 0 && !leave_ ? taken(events, 1) : 0;
      waiting_ = false;
      if (count == 0)
        break;
      handle({events, count});
    }
    leave_ = false;
  }

  std::size_t taken(std::span<Readiness::News> events, int wait_ms) {
    return static_cast<std::size_t>(
        std::max(0, Readiness::take(set_.native_handle(), events, wait_ms)));
  }

  void handle(std::span<const Readiness::News> events) {
    for (const Readiness::News& news : events) {
      if (news.mark == wake_mark) {
        char bytes[64];
        (void)!::read(wake_read_.get(), bytes, sizeof bytes);
        continue;
      }
      const Slot& slot = slots_[static_cast<std::uint32_t>(news.mark)];
      if (slot.generation != static_cast<std::uint32_t>(news.mark >> 32) || !slot.impl)
        continue;
      const auto impl = slot.impl;
      const bool readable = impl->want_read && (news.over || news.read);
      const bool writable = impl->want_write && (news.over || news.write);
      if (!readable && !writable)
        continue;
      impl->running = true;
      call_guarded("descriptor", impl->fn, readable, writable);
      impl->running = false;
      if (!impl->live)
        drop(impl->fn);
    }
  }

  static constexpr std::uint64_t wake_mark = UINT64_MAX;
  static constexpr std::chrono::milliseconds stay{1};
  asio::posix::stream_descriptor set_;
  Fd wake_read_, wake_write_;  // a byte interrupts the wait for events
  bool stays_ = false;
  std::atomic<bool> waiting_ = false, leave_ = false;
  std::atomic<std::uint32_t> posts_ = 0;  // that Asio has not run yet
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
};

FdWatch::~FdWatch() {
  impl_->live = false;
  impl_->poller->remove(*impl_);
  if (!impl_->running)
    drop(impl_->fn);
}

void FdWatch::want(bool read, bool write) {
  impl_->want_read = read;
  impl_->want_write = write;
  impl_->poller->set(*impl_, {read, write});
}

struct Loop::Impl {
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  Poller poller{context};
  std::map<const void*, std::shared_ptr<void>> kept;  // destroyed before what it uses
};

Loop::Loop() : impl_(std::make_unique<Impl>()) {}
Loop::~Loop() = default;

void Loop::keep(std::shared_ptr<void> object) {
  const void* const key = object.get();
  impl_->kept[key] = std::move(object);
}

void Loop::let_go(const void* object) {
  if (auto kept = impl_->kept.extract(object))
    post([last = std::move(kept.mapped())] {});
}

void Loop::run() {
  impl_->context.restart();
  impl_->poller.set_stays(true);
  impl_->context.run();
  impl_->poller.set_stays(false);
}

void Loop::stop() {
  impl_->context.stop();
  impl_->poller.leave();
}

bool Loop::run_until(const std::function<bool()>& condition, Duration at_most) {
  impl_->context.restart();
  const auto deadline = std::chrono::steady_clock::now() + chrono_of(at_most);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline)
      return false;
    // A short slice: the condition may also depend on other threads that do not post.
    const auto slice =
        std::min(deadline, std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
    impl_->context.run_one_until(slice);
    if (impl_->context.stopped())
      impl_->context.restart();
  }
  return true;
}

void Loop::post(std::function<void()> fn) {
  Poller& poller = impl_->poller;
  poller.posted();  // first: when the work has run, the loop may be gone
  asio::post(impl_->context, [&poller, fn = std::move(fn)]() mutable {
    poller.ran_posted();
    call_guarded("posted", fn);
  });
}

Timer Loop::after(Duration delay, std::function<void()> fn) {
  auto state = std::make_shared<TimerState>(impl_->context, Duration{}, std::move(fn));
  state->start(delay);
  if (delay < milliseconds(3))
    impl_->poller.leave();  // it is due before the next look at Asio
  return Timer(std::move(state));
}

Timer Loop::every(Duration period, std::function<void()> fn) {
  BILLOW_CHECK(period.ns > 0, "a period must be positive");
  auto state = std::make_shared<TimerState>(impl_->context, period, std::move(fn));
  state->start(period);
  return Timer(std::move(state));
}

Watch Loop::on_signal(std::initializer_list<int> signals, std::function<void(int)> fn) {
  auto state = std::make_shared<SignalState>(impl_->context, std::move(fn));
  for (int signal : signals) {
    error_code ec;
    (void)state->set.add(signal, ec);
    BILLOW_CHECK(!ec, "this signal cannot be caught");
  }
  state->wait();
  return Watch(std::move(state));
}

Watch Loop::on_readable(int fd, std::function<void()> fn) {
  auto state = std::make_shared<WatchState>();
  state->watch = watch(fd, [fn = std::move(fn)](bool, bool) { fn(); });
  state->watch->want(true, false);
  return Watch(std::move(state));
}

Watch Loop::on_writable(int fd, std::function<void()> fn) {
  auto state = std::make_shared<WatchState>();
  state->watch = watch(fd, [fn = std::move(fn)](bool, bool) { fn(); });
  state->watch->want(false, true);
  return Watch(std::move(state));
}

std::unique_ptr<FdWatch> Loop::watch(int fd, std::function<void(bool, bool)> fn) {
  return std::unique_ptr<FdWatch>(new FdWatch(impl_->poller.add(fd, std::move(fn))));
}

}  // namespace billow::net
