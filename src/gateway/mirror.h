// A copy of a request for a canary. Nobody waits for it: its answer is read and dropped, and only
// its figures count.
#pragma once

#include "gateway/proxy.h"

namespace billow::gateway {

class MirrorFront final : public Front {
 public:
  MirrorFront(Proxy& proxy, const Front& of, std::string body) : Front(proxy, "", std::nullopt) {
    begin_copy(of, std::move(body));
  }
  void send(const std::shared_ptr<Upstream>& upstream) {
    proxy_.remember(shared_from_this());
    give(upstream);
  }
  bool tls() const override { return false; }
  bool congested() override { return false; }

 protected:
  int client_fd() const override { return -1; }
  bool client_lost(SteadyTime) override { return false; }
  void pause_client() override {}
  void resume_client() override {}
  void go_on() override {}
  void begin_answer(net::HttpParser::Head&) override {}
  void send_answer(std::string_view) override {}
  void flush_answer() override {}
  void finish_answer(const net::Headers&) override {}
  void send_whole(const net::Response&) override {}
  void disconnect() override {}
  void end_of_answer() override { leave(); }
  void say_goodbye() override { leave(); }

 private:
  void leave() {
    if (state_ == State::closed)
      return;
    state_ = State::closed;
    proxy_.forget(*this);
  }
};

}  // namespace billow::gateway
