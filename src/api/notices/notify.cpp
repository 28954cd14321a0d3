// The targets to which a person's notices go. Everybody has the own ones: nobody sees those of
// others, and no answer contains the secret part of an address again.
#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "base/crypto.h"
#include "base/text.h"
#include "net/address.h"
#include "net/smtp.h"

namespace billow::api::notify {
namespace {

const Json done = Json::object({{"ok", true}});

struct ChoiceBody {
  std::vector<std::string> on;
  std::int64_t wait_s = 3600;
  std::int32_t budget_pct = 80;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("on", s.on);
    v("wait_s", s.wait_s);
    v("budget_pct", s.budget_pct);
  }
};
struct TargetBody {
  std::string via;
  std::string address;  // a mail address, or a URL
  std::string token;    // of ntfy
  std::vector<std::string> on;
  std::int64_t wait_s = 3600;
  std::int32_t budget_pct = 80;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("via", s.via);
    v("address", s.address);
    v("token", s.token);
    v("on", s.on);
    v("wait_s", s.wait_s);
    v("budget_pct", s.budget_pct);
  }
};
struct CodeBody {
  std::string code;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("code", s.code);
  }
};

Result<std::vector<NoticeOn>> chosen(const std::vector<std::string>& names) {
  std::vector<NoticeOn> out;
  for (const std::string& name : names) {
    const auto found = enum_value<NoticeOn>(name);
    if (!found)
      return fail(Code::invalid, fmt::format("\"{}\" is not a kind of notice", name),
                  "use ends, fails, waits, idle or budget");
    out.push_back(*found);
  }
  return out;
}

// What lists show of an address: the host, and of ntfy also the server, but never a path.
Result<std::string> shown_part(const TargetBody& body, NoticeVia via) {
  if (via == NoticeVia::browser)
    return std::string("browsers in which you are signed in");
  if (via == NoticeVia::email) {
    if (!net::is_mail_address(body.address))
      return fail(Code::invalid, fmt::format("\"{}\" is not a mail address", body.address));
    return body.address;
  }
  const std::string& url = body.address;
  if (!url.starts_with("https://") && !url.starts_with("http://"))
    return fail(Code::invalid, "the address is not a URL", "it begins with https://");
  if (url.find('@') != std::string::npos)
    return fail(Code::invalid, "the address must not contain a password");
  const net::Url parsed = BILLOW_TRY(net::parse_url(url));
  if (via == NoticeVia::ntfy) {
    const std::string topic = parsed.target.substr(parsed.target.rfind('/') + 1);
    if (topic.empty() || topic.find('?') != std::string::npos)
      return fail(Code::invalid, "the address names no topic",
                  "write it like https://ntfy.sh/TOPIC");
  }
  return parsed.endpoint.address.host;
}

Json document_of(const Call& call, const NoticeTarget& target) {
  Json on = Json::array();
  for (const NoticeOn each : target.on)
    on.push(enum_name(each));
  const auto& waiting = call.host.state().notices.waiting;
  const auto found = waiting.find(target.id);
  Json out = Json::object({{"id", target.id},
                           {"via", enum_name(target.via)},
                           {"to", target.to},
                           {"on", std::move(on)},
                           {"wait_s", target.wait.ns / 1'000'000'000},
                           {"budget_pct", target.budget_pct},
                           {"confirmed", target.confirmed},
                           {"waiting", found == waiting.end() ? 0 : found->second.size()}});
  out.set("sent_at", target.tried_at ? Json(format_utc(target.tried_at)) : Json());
  out.set("trouble", target.trouble);
  return out;
}

// The caller's target that the path names.
std::optional<std::uint64_t> own_target(const CallPtr& call) {
  const auto id = parse_int(call->parts[0], 1, INT64_MAX);
  const auto& targets = call->host.state().notices.targets;
  const auto found = id ? targets.find(static_cast<std::uint64_t>(*id)) : targets.end();
  if (found != targets.end() && found->second.user == call->principal.user)
    return found->first;
  call->fail({Code::not_found, fmt::format("you have no target {}", call->parts[0]),
              "see `billow notify list`"});
  return std::nullopt;
}

void answer_added(const CallPtr& call, const NoticeTarget& target) {
  Json out = document_of(*call, target);
  if (target.via == NoticeVia::webhook)
    out.set("secret", call->host.target_secret(target.id));
  if (target.via != NoticeVia::email)
    return call->reply(201, out);
  call->host.send_target_code(target.id, [call, out](const Status& sent) mutable {
    out.set("code_sent", sent.has_value());
    out.set("trouble", sent ? std::string() : sent.error().message);
    call->reply(201, out);
  });
}

}  // namespace

void list(CallPtr call) {
  Json targets = Json::array();
  for (const auto& [id, target] : call->host.state().notices.targets)
    if (target.user == call->principal.user && !call->principal.agent)
      targets.push(document_of(*call, target));
  call->reply_durable(
      200, Json::object({{"targets", std::move(targets)}, {"mail", call->host.can_mail()}}));
}

void add(CallPtr call) {
  auto body = read_body<TargetBody>(call);
  if (!body)
    return;
  const auto via = enum_value<NoticeVia>(body->via);
  if (!via)
    return call->fail({Code::invalid, fmt::format("\"{}\" is not a kind of target", body->via),
                       "use email, slack, discord, ntfy, webhook or browser"});
  if (*via == NoticeVia::email && !call->host.can_mail())
    return call->fail({Code::unsupported, "this head has no mail server",
                       "an admin can name one: billow up --smtp smtp://USER@HOST"});
  const auto on = chosen(body->on);
  const auto shown = shown_part(*body, *via);
  if (!on || !shown)
    return call->fail(on ? shown.error() : on.error());
  NoticeTarget target{.id = call->host.state().notices.next_target,
                      .user = call->principal.user,
                      .via = *via,
                      .to = *shown,
                      .on = *on,
                      .wait = seconds(std::clamp<std::int64_t>(body->wait_s, 0, 1 << 30)),
                      .budget_pct = body->budget_pct,
                      .confirmed = *via != NoticeVia::email};
  std::string sealed;
  if (*via != NoticeVia::email && *via != NoticeVia::browser) {
    std::string text = Json::object({{"url", body->address}, {"token", body->token}}).dump();
    auto made = call->host.seal_secret(ProjectId{}, notice_secret(target.id), text);
    wipe(text);
    if (!made)
      return call->fail(made.error());
    sealed = std::move(*made);
  }
  call->host.execute(AddNoticeTarget{target, std::move(sealed)}, call->cause(),
                     [call, target](Result<std::vector<Event>> events) {
                       if (!events)
                         return call->fail(events.error());
                       answer_added(call, target);
                     });
}

void change(CallPtr call) {
  const auto id = own_target(call);
  if (!id)
    return;
  const auto body = read_body<ChoiceBody>(call);
  if (!body)
    return;
  const auto on = chosen(body->on);
  if (!on)
    return call->fail(on.error());
  call->execute(
      ChangeNoticeTarget{.by = call->principal.user,
                         .target = *id,
                         .on = *on,
                         .wait = seconds(std::clamp<std::int64_t>(body->wait_s, 0, 1 << 30)),
                         .budget_pct = body->budget_pct},
      200, [](const std::vector<Event>&) { return done; });
}

void remove(CallPtr call) {
  if (const auto id = own_target(call))
    call->execute(RemoveNoticeTarget{call->principal.user, *id}, 200,
                  [](const std::vector<Event>&) { return done; });
}

void confirm(CallPtr call) {
  const auto id = own_target(call);
  if (!id)
    return;
  const auto body = read_body<CodeBody>(call);
  if (!body)
    return;
  if (!equal_constant_time(trim(body->code), call->host.target_code(*id)))
    return call->fail({Code::invalid, "the code is wrong",
                       "copy it from the newest mail, or add the address again for a new code"});
  call->execute(ConfirmNoticeTarget{call->principal.user, *id}, 200,
                [](const std::vector<Event>&) { return done; });
}

void test(CallPtr call) {
  const auto id = own_target(call);
  if (!id)
    return;
  if (!call->host.state().notices.targets.at(*id).confirmed)
    return call->fail(
        {Code::conflict, "the mail address is not confirmed yet",
         fmt::format("enter the code in the mail: billow notify confirm {} CODE", *id)});
  call->host.test_target(*id, [call](const Status& sent) {
    if (!sent)
      return call->fail(sent.error());
    call->reply(200, done);
  });
}

}  // namespace billow::api::notify
