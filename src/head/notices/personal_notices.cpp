#include "head/notices/personal_notices.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/json.h"
#include "base/log.h"
#include "core/control/money.h"
#include "core/ledger/notify.h"
#include "net/guard.h"

namespace billow::head {
namespace {

constexpr std::size_t notices_per_message_max = 20;
constexpr Duration pause_between = seconds(10);  // of messages to one target
constexpr Duration answer_patience = seconds(20);

// Where a target is, as it was sealed: an address, and for ntfy perhaps a token.
struct Place {
  std::string url, token;
};
Result<Place> place_of(const control::State& state, const SecretKeeper& keeper, std::uint64_t id) {
  const std::string name = notice_secret(id);
  const auto secret = state.secrets.find({ProjectId{}, name});
  if (secret == state.secrets.end())
    return fail(Code::not_found, "its address is missing", "remove the target and add it again");
  const Json json = BILLOW_TRY(parse_json(BILLOW_TRY(keeper.opened(name, secret->second.sealed))));
  return Place{std::string(json["url"].str_or("")), std::string(json["token"].str_or(""))};
}

// An answer that a later try cannot change is an error of the target.
Status judged(const Result<net::Response>& answer) {
  if (!answer)
    return pass(answer.error());
  if (answer->status >= 200 && answer->status < 300)
    return {};
  const std::string text = fmt::format("the receiver answered {}", answer->status);
  return ledger::delivered_or_refused(answer->status) ? Status(fail(Code::invalid, text))
                                                      : Status(fail(Code::unavailable, text));
}

bool may_work_later(const Error& error) {
  return error.code == Code::unavailable || error.code == Code::timed_out ||
         error.code == Code::exhausted;
}

}  // namespace

PersonalNotices::PersonalNotices(net::Loop& loop, Options options)
    : loop_(loop), options_(std::move(options)), mailers_(loop, {.threads = 1, .queue_max = 256}) {}

Result<std::unique_ptr<PersonalNotices>> PersonalNotices::create(net::Loop& loop, Options options) {
  auto out = std::unique_ptr<PersonalNotices>(new PersonalNotices(loop, std::move(options)));
  out->founders_ = BILLOW_TRY(net::HttpClient::create(loop, {}));
  out->others_ = BILLOW_TRY(net::HttpClient::create(
      loop, {.check_address = net::only_outwards(out->options_.webhook_hosts)}));
  return out;
}

PersonalNotices::~PersonalNotices() {
  *here_ = false;
}

void PersonalNotices::begin() {
  std::vector<std::uint64_t> waiting;
  for (const auto& [id, notices] : options_.engine().state().notices.waiting)
    waiting.push_back(id);
  for (const std::uint64_t id : waiting)
    send(id);
}

const NoticeTarget* PersonalNotices::find(std::uint64_t target) const {
  const auto& targets = options_.engine().state().notices.targets;
  const auto found = targets.find(target);
  return found == targets.end() ? nullptr : &found->second;
}

std::string PersonalNotices::signing_secret(std::uint64_t target) const {
  return "whsec_" + hmac_sha256_hex(options_.key, fmt::format("target {}", target)).substr(0, 48);
}

std::string PersonalNotices::code(std::uint64_t id) const {
  const NoticeTarget* target = find(id);
  return target ? hmac_sha256_hex(options_.key, fmt::format("confirm {} {}", id, target->to))
                      .substr(0, 10)
                : std::string();
}

void PersonalNotices::send(std::uint64_t id) {
  const NoticeTarget* target = find(id);
  if (!target) {
    lanes_.erase(id);
    return;
  }
  const auto& all = options_.engine().state().notices.waiting;
  const auto waiting = all.find(id);
  Lane& lane = lanes_[id];
  if (lane.sending || waiting == all.end() || waiting->second.empty())
    return;
  const SteadyTime now = options_.clock->steady();
  if (lane.sent.ns != 0 && now - lane.sent < pause_between) {
    lane.again = loop_.after(pause_between - (now - lane.sent), [this, id] { send(id); });
    return;
  }
  NoticeMessage message;
  for (const PersonalNotice& notice : waiting->second) {
    if (message.notices.size() == notices_per_message_max)
      break;
    message.notices.push_back(notice);
  }
  message.id =
      fmt::format("{}.{}", sha256_hex(options_.key).substr(0, 16),
                  sha256_hex(fmt::format("{} {}", id, message.notices.front().seq)).substr(0, 24));
  const Seq through = message.notices.back().seq;
  lane.sending = true;
  deliver(*target, std::move(message),
          [this, id, through](const Status& result) { finished(id, through, result); });
}

void PersonalNotices::finished(std::uint64_t id, Seq through, const Status& result) {
  Lane& lane = lanes_[id];
  lane.sending = false;
  lane.sent = options_.clock->steady();
  if (!result && may_work_later(result.error()))
    if (const auto wait = ledger::retry_after(++lane.failures)) {
      log_warn("notices to target {} could not be sent: {}", id, result.error().message);
      lane.again = loop_.after(*wait, [this, id] {
        lanes_[id].sent = {};
        send(id);
      });
      return;
    }
  if (!result)
    log_warn("gave up sending notices to target {}: {}", id, result.error().message);
  lane.failures = 0;
  options_.engine().execute(
      RecordNoticesSent{{id, through, result ? std::string() : result.error().message}},
      {"head", ""}, {});
  send(id);
}

void PersonalNotices::deliver(const NoticeTarget& target, NoticeMessage message, Done done) {
  switch (target.via) {
    case NoticeVia::email:
      return mail(target, message, std::move(done));
    case NoticeVia::slack:
    case NoticeVia::discord:
    case NoticeVia::ntfy:
    case NoticeVia::webhook:
      return post(target, message, std::move(done));
    case NoticeVia::browser:
      break;
  }
  loop_.post([done = std::move(done)] { done({}); });
}

void PersonalNotices::mail(const NoticeTarget& target, const NoticeMessage& message, Done done) {
  if (!options_.mail) {
    loop_.post([done = std::move(done)] {
      done(fail(Code::unavailable, "this head has no mail server",
                "an admin can name one: billow up --smtp smtp://USER@HOST"));
    });
    return;
  }
  const std::string text = mail_text(
      message, {.from = options_.mail->from, .to = target.to, .date = options_.clock->wall()});
  const Status queued = mailers_.submit(
      [server = *options_.mail, to = target.to, text] { return net::send_mail(server, to, text); },
      [done, here = here_](const Status& sent) {
        if (*here)
          done(sent);
      });
  if (!queued)
    loop_.post([done = std::move(done), error = queued.error()] { done(pass(error)); });
}

void PersonalNotices::post(const NoticeTarget& target, const NoticeMessage& message, Done done) {
  const auto answer_later = [&](const Error& error) {
    loop_.post([done, error] { done(pass(error)); });
  };
  auto place = place_of(options_.engine().state(), *options_.keeper, target.id);
  if (!place)
    return answer_later(place.error());
  auto url = net::parse_url(place->url);
  if (!url)
    return answer_later(url.error());
  net::ClientRequest request;
  request.endpoint = url->endpoint;
  request.method = net::Method::post;
  request.target = url->target;
  request.timeout = answer_patience;
  request.headers = {{"Content-Type", "application/json"}};
  if (target.via == NoticeVia::slack)
    request.body = slack_body(message);
  if (target.via == NoticeVia::discord)
    request.body = discord_body(message);
  if (target.via == NoticeVia::ntfy) {
    // The topic is the last part of the path; the JSON form is posted to what is before it.
    const std::size_t slash = url->target.rfind('/');
    request.body = ntfy_body(message, url->target.substr(slash + 1));
    request.target = url->target.substr(0, slash + 1);
    if (!place->token.empty())
      request.headers.set("Authorization", "Bearer " + place->token);
  }
  if (target.via == NoticeVia::webhook) {
    Json data = Json::array();
    for (const PersonalNotice& notice : message.notices)
      data.push(Json::object({{"on", enum_name(notice.on)},
                              {"title", notice.title},
                              {"text", notice.text},
                              {"job", notice.job.value},
                              {"at", format_utc(notice.at)}}));
    const PersonalNotice& first = message.notices.front();
    const ledger::Notice notice{.seq = first.seq,
                                .kind = fmt::format("personal.{}", enum_name(first.on)),
                                .at = first.at,
                                .project = "",
                                .text = message.title(),
                                .data = Json::object({{"notices", std::move(data)}})};
    const ledger::WebhookMessage made =
        ledger::sign(notice, message.id, {signing_secret(target.id)}, options_.clock->wall());
    for (const auto& [name, value] : made.headers)
      request.headers.set(name, value);
    request.body = made.body;
  }
  net::HttpClient& client =
      control::is_founder(options_.engine().state(), target.user) ? *founders_ : *others_;
  client.fetch(std::move(request),
               [done = std::move(done), here = here_](const Result<net::Response>& answer) {
                 if (*here)
                   done(judged(answer));
               });
}

void PersonalNotices::send_code(std::uint64_t id, Done done) {
  const NoticeTarget* target = find(id);
  if (!target)
    return done(fail(Code::not_found, "no such target"));
  NoticeMessage message;
  message.notices.push_back(
      {.target = id,
       .title = "Confirm this address for notices of Billow",
       .text = fmt::format("Enter this code on the dashboard's page of notifications, or run\n\n"
                           "    billow notify confirm {} {}\n\n"
                           "If you did not ask for it, ignore this mail: nothing more is sent.",
                           id, code(id))});
  message.id = fmt::format("code.{}.{}", id, options_.clock->wall().ns);
  mail(*target, message, std::move(done));
}

void PersonalNotices::test(std::uint64_t id, Done done) {
  const NoticeTarget* target = find(id);
  if (!target)
    return done(fail(Code::not_found, "no such target"));
  NoticeMessage message;
  message.notices.push_back({.target = id,
                             .title = "Test notice from Billow",
                             .text = "You will get your notices here.",
                             .seq = static_cast<Seq>(options_.clock->wall().ns),
                             .at = options_.clock->wall()});
  message.id = fmt::format("test.{}.{}", id, options_.clock->wall().ns);
  deliver(*target, std::move(message), std::move(done));
}

}  // namespace billow::head
