#include "net/workers.h"

#include <condition_variable>
#include <thread>

#include "base/log.h"
#include "base/sync.h"

namespace billow::net {

struct Workers::Impl {
  struct Queue {
    std::deque<std::function<std::function<void()>()>> work;
    bool stopping = false;
  };
  Loop& loop;
  std::size_t queue_max;
  Sync<Queue> queue;
  std::condition_variable wake;
  std::vector<std::thread> threads;
  // Deliveries that are posted when the pool is destroyed find this expired and do nothing.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);

  Impl(Loop& l, std::size_t max) : loop(l), queue_max(max) {}

  void run() {
    for (;;) {
      std::function<std::function<void()>()> work;
      {
        auto q = queue.lock();
        wake.wait(q.mutex_lock(), [&] { return q->stopping || !q->work.empty(); });
        if (q->stopping)
          return;
        work = std::move(q->work.front());
        q->work.pop_front();
      }
      try {
        if (auto deliver = work())
          loop.post([weak = std::weak_ptr<bool>(alive), deliver = std::move(deliver)] {
            if (weak.lock())
              deliver();
          });
      } catch (const std::exception& e) {
        log_error("a worker's task threw: {}", e.what());
      }
    }
  }
};

Workers::Workers(Loop& loop, Options options)
    : impl_(std::make_unique<Impl>(loop, options.queue_max)) {
  for (std::size_t i = 0; i < options.threads; ++i)
    impl_->threads.emplace_back([impl = impl_.get()] { impl->run(); });
}

Workers::~Workers() {
  impl_->queue.lock()->stopping = true;
  impl_->wake.notify_all();
  for (auto& thread : impl_->threads)
    thread.join();
}

Status Workers::submit(std::function<std::function<void()>()> work) {
  {
    auto q = impl_->queue.lock();
    if (q->work.size() >= impl_->queue_max)
      return fail(Code::exhausted,
                  fmt::format("{} tasks already wait for a worker", q->work.size()),
                  "try again shortly");
    q->work.push_back(std::move(work));
  }
  impl_->wake.notify_one();
  return {};
}

}  // namespace billow::net
