// Notices to the outside: budgets, idle jobs, failures, health. Durable events become notices. Each
// webhook has its own queue, sends in order, retries with growing pauses, and records its position
// in the journal. After a crash it continues from there: a notice may be sent twice, with the same
// id, but none is left out. A command on the head's machine can get notices too, once each, without
// retries.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/ledger/notify.h"
#include "head/engine.h"
#include "head/secrets/secret_keeper.h"
#include "net/http/http_client.h"
#include "net/loop.h"

namespace billow::head {

// The notice for an event; most events have none. `project` is the project's name, if the state
// still knows it.
std::optional<ledger::Notice> notice_of(const control::State& state, const Event& event);

class Notifier {
 public:
  struct Options {
    std::string key;      // webhooks' first secrets are made from it
    std::string command;  // run by /bin/sh for each notice, JSON on its standard input; empty: none
    std::vector<std::string> webhook_hosts;  // of private networks, that webhooks may call
    std::function<Engine&()> engine;
    Journal* journal = nullptr;
    const SecretKeeper* keeper = nullptr;  // opens the keys that replaced the first ones
    const Clock* clock = nullptr;
  };
  static Result<std::unique_ptr<Notifier>> create(net::Loop& loop, Options options);
  ~Notifier();

  // Reads the events after the webhooks' positions from the journal; once, at start.
  void catch_up();
  void on_event(const Event& event, std::optional<ledger::Notice> notice);
  // A notice without an event (the monthly review): queued and retried like the others, but lost in
  // a crash. Its kind must be unique, since its id is made from it.
  void tell(ledger::Notice notice);
  std::size_t waiting(std::uint64_t webhook) const;
  // What its messages are signed with now; empty: it cannot be opened.
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
  Notifier(net::Loop& loop, Options options) : loop_(loop), options_(std::move(options)) {}
  Result<ledger::WebhookKeys> keys(std::uint64_t webhook) const;
  void send(std::uint64_t webhook);
  void finished(std::uint64_t webhook, bool settled);
  std::shared_ptr<net::HttpClient::Call> post(const Webhook& webhook,
                                              const ledger::Notice& notice,
                                              std::function<void(Result<int>)> done);
  void run_command(const ledger::Notice& notice);

  net::Loop& loop_;
  Options options_;
  // The user who started the head could call any address from its machine anyway. Other admins'
  // webhooks lead only outwards.
  std::unique_ptr<net::HttpClient> founders_, others_;
  std::map<std::uint64_t, Queue> queues_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace billow::head
