// Sends the notices that the core has queued for users (core/control/decide/notices.h): in order
// for each target, several notices in one message if they come quickly, with growing pauses after
// failures. A message may be sent twice after a crash, with the same id.
//
// Like webhooks, targets must be public addresses; only the user who started the head may name
// others.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "head/engine.h"
#include "head/notices/forms.h"
#include "head/secrets/secret_keeper.h"
#include "net/http/http_client.h"
#include "net/smtp.h"
#include "net/workers.h"

namespace billow::head {

class PersonalNotices {
 public:
  struct Options {
    std::string key;                         // secrets of webhooks and codes are made from it
    std::vector<std::string> webhook_hosts;  // private hosts that targets may name
    std::optional<net::SmtpServer> mail;     // none: no mail can be sent
    std::function<Engine&()> engine;
    const SecretKeeper* keeper = nullptr;
    const Clock* clock = nullptr;
  };
  static Result<std::unique_ptr<PersonalNotices>> create(net::Loop& loop, Options options);
  ~PersonalNotices();

  // Sends what waited when the head ended.
  void begin();
  // A notice was queued, and that is durable.
  void queued(std::uint64_t target) { send(target); }

  bool can_mail() const { return options_.mail.has_value(); }
  // The secret with which messages to a webhook are signed.
  std::string signing_secret(std::uint64_t target) const;
  // What the owner of a mail address must know to confirm it.
  std::string code(std::uint64_t target) const;
  using Done = std::function<void(Status)>;
  void send_code(std::uint64_t target, Done done);
  void test(std::uint64_t target, Done done);

 private:
  struct Lane {
    std::uint32_t failures = 0;
    bool sending = false;
    SteadyTime sent;
    net::Timer again;
  };
  PersonalNotices(net::Loop& loop, Options options);
  void send(std::uint64_t target);
  void finished(std::uint64_t target, Seq through, const Status& result);
  void deliver(const NoticeTarget& target, NoticeMessage message, Done done);
  void mail(const NoticeTarget& target, const NoticeMessage& message, Done done);
  void post(const NoticeTarget& target, const NoticeMessage& message, Done done);
  const NoticeTarget* find(std::uint64_t target) const;

  net::Loop& loop_;
  Options options_;
  std::unique_ptr<net::HttpClient> founders_, others_;
  std::map<std::uint64_t, Lane> lanes_;
  net::Workers mailers_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace billow::head
