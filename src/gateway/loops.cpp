// The gateway's loops, and the lock around its decisions (gateway.h has the rules).
#include <fmt/format.h>

#include "gateway/gateway.h"

namespace billow::gateway {

void Gateway::begin_lanes() {
  for (std::size_t i = 1; i < options_.proxy.threads; ++i) {
    auto lane = std::make_unique<Lane>();
    lane->proxy = Proxy::beside(lane->loop, *proxy_);
    lanes_.push_back(std::move(lane));
  }
  for (const auto& lane : lanes_)
    lane->thread = std::thread([at = lane.get()] {
      at->proxy->begin_thread();
      at->loop.run();
    });
}

// Afterwards this thread is the only one, and may touch everything.
void Gateway::end_lanes() {
  for (const auto& lane : lanes_)
    lane->loop.stop();
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable())
      lane->thread.join();
    lane->proxy->begin_thread();
  }
}

void Gateway::each_proxy(const std::function<void(Proxy&)>& fn) {
  fn(*proxy_);
  for (const auto& lane : lanes_)
    lane->proxy->run_here([fn, at = lane->proxy.get()] { fn(*at); });
}

void Gateway::stop() {
  each_proxy([](Proxy& proxy) { proxy.stop_listening(); });
}

bool Gateway::deserted() const {
  return proxy_->deserted() &&
         std::ranges::all_of(lanes_, [](const auto& lane) { return lane->proxy->deserted(); });
}

// ---- decisions

void Gateway::end_decision() {
  const std::vector<Act> acts = --depth_ == 0 ? std::exchange(acts_, {}) : std::vector<Act>();
  mutex_.unlock();
  for (const Act& act : acts) {
    Proxy& proxy = act.front->proxy();
    if (proxy.on_own_thread())
      act.run();
    else
      proxy.loop().post([act] { act.run(); });
  }
}

void Gateway::Act::run() const {
  if (front->active() && front->ticket.id == id)
    fn();
  else if (otherwise)
    otherwise();
}

void Gateway::refuse(const std::shared_ptr<Front>& front, net::Response response) {
  act(front, front->ticket.id,
      [front, response = std::move(response)]() mutable { front->refuse(std::move(response)); });
}

void Gateway::respond(const std::shared_ptr<Front>& front, net::Response response) {
  act(front, front->ticket.id,
      [front, response = std::move(response)]() mutable { front->respond(std::move(response)); });
}

// ---- what belongs to the first loop

void Gateway::on_first(std::function<void()> fn) {
  if (proxy_->on_own_thread()) {
    const Decision decision(*this);
    return fn();
  }
  loop_.post([this, alive = std::weak_ptr(alive_), fn = std::move(fn)] {
    if (alive.expired())
      return;
    const Decision decision(*this);
    fn();
  });
}

void Gateway::set_link(HeadLink* link) {
  const Decision decision(*this);
  link_ = link;
  head_was_here_ = link_ && link_->connected();
}

bool Gateway::head_is_here() const {
  return proxy_->on_own_thread() ? link_ && link_->connected() : head_was_here_;
}

void Gateway::say_to_head(FromGateway message) {
  on_first([this, message = std::move(message)] {
    // Before the notification that callers wait for.
    if (std::holds_alternative<RevisionJudged>(message))
      tell_changes();
    if (link_)
      link_->say(message);
  });
}

void Gateway::ask_head(FromGateway message,
                       std::uint64_t number,
                       std::function<void(Result<Reply>)> done) {
  on_first([this, message = std::move(message), number, done = std::move(done)] {
    const auto locked = [this, done](Result<Reply> reply) {
      const Decision decision(*this);
      done(std::move(reply));
    };
    if (link_)
      return link_->ask(message, number, locked);
    loop_.post([locked, alive = std::weak_ptr(alive_)] {
      if (!alive.expired())
        locked(fail(Code::unavailable, "the head is unreachable"));
    });
  });
}

}  // namespace billow::gateway
