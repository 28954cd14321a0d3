// A bounded pool of threads for work that would block the loop (fsync, name look-ups, compression).
// Results are delivered on the loop's thread. The queue is bounded: when it is full, submit()
// fails.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "net/loop.h"

namespace billow::net {

class Workers {
 public:
  struct Options {
    std::size_t threads = 2;
    std::size_t queue_max = 1024;
  };
  Workers(Loop& loop, Options options);
  ~Workers();  // waits for running work, drops queued work; pending results are not delivered
  Workers(const Workers&) = delete;

  // `work` runs on a worker; what it returns runs on the loop. Fails with Code::exhausted when the
  // queue is full.
  Status submit(std::function<std::function<void()>()> work);

  // The same, typed: done(work()) on the loop.
  template <class Work, class Done>
  Status submit(Work work, Done done) {
    return submit(
        [work = std::move(work), done = std::move(done)]() mutable -> std::function<void()> {
          auto result = std::make_shared<decltype(work())>(work());
          return [done = std::move(done), result]() mutable {
            done(std::move(*result));
          };
        });
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace billow::net
