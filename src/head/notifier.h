// Notices to the outside: budgets, idleness, failures, health. Durable events become notices; each
// webhook has a queue of its own, sends them in order, tries again with growing pauses, and says in
// the journal how far it has come. After a crash it goes on from there: a notice may be sent twice
// and has the same id both times, none is left out. A command on the head's own machine can be told
// too; it is given what happened once, and nothing is tried again.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/ledger/notify.h"
#include "head/engine.h"
#include "net/http/http_client.h"
#include "net/loop.h"

namespace billow::head {

// What an event tells people; most tell nothing. `project` is the name it concerns, as far as the
// state still knows it.
std::optional<ledger::Notice> notice_of(const control::State& state, const Event& event);

class Notifier {
 public:
  struct Options {
    std::string key;      // webhooks' secrets are made from it
    std::string command;  // run by /bin/sh for each notice, JSON on its standard input; empty: none
    std::function<Engine&()> engine;
    Journal* journal = nullptr;
    const Clock* clock = nullptr;
  };
  static Result<std::unique_ptr<Notifier>> create(net::Loop& loop, Options options);
  ~Notifier();

  // Reads what the journal has behind the webhooks' positions; once, at start.
  void catch_up();
  void on_event(const Event& event, std::optional<ledger::Notice> notice);
  // A notice that no event caused (the monthly review): sent behind what waits, and tried again
  // like the others, but not found again after a crash. Its kind must be its own, since ids are
  // made from it.
  void tell(ledger::Notice notice);
  std::size_t waiting(std::uint64_t webhook) const;
  std::string secret(std::uint64_t webhook) const;
  void test(std::uint64_t webhook, std::function<void(Result<int>)> done);

 private:
  struct Queue {
    std::deque<ledger::Notice> notices;
    std::uint32_t failures = 0;
    bool sending = false;
    std::shared_ptr<net::HttpClient::Call> call;
    net::Timer again;
  };
  Notifier(net::Loop& loop, Options options, std::unique_ptr<net::HttpClient> client);
  void send(std::uint64_t webhook);
  void finished(std::uint64_t webhook, bool settled);
  std::shared_ptr<net::HttpClient::Call> post(const Webhook& webhook,
                                              const ledger::Notice& notice,
                                              std::function<void(Result<int>)> done);
  void run_command(const ledger::Notice& notice);

  net::Loop& loop_;
  Options options_;
  std::unique_ptr<net::HttpClient> client_;
  std::map<std::uint64_t, Queue> queues_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace billow::head
