#include "gateway/door/acme.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "core/wire/codec.h"
#include "net/certs.h"

namespace billow::gateway {
namespace {

constexpr Duration look_period = seconds(2);
constexpr Duration order_again_min = minutes(1), order_again_max = hours(12);
constexpr Duration hook_patience = minutes(10);
constexpr int post_tries_max = 3;
constexpr std::uint32_t polls_max = 120;
constexpr std::size_t document_bytes_max = 256 << 10;

}  // namespace

struct Acme::Order {
  std::vector<std::string> names;
  std::string url, finalize, key_pem;
  std::deque<std::string> authorizations;  // URLs of those that are left
  std::string authorization;               // being proved
  std::string token;                       // of the file that proves it
  std::string record, value;               // of the DNS record that proves it
  std::uint32_t polls = 0;
};

struct Acme::Troubles {
  std::map<std::string, Trouble> names;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("names", s.names);
  }
};

Acme::Acme(net::Loop& loop, AcmeOptions options, std::string directory, Hooks hooks)
    : loop_(loop),
      options_(std::move(options)),
      directory_(std::move(directory)),
      hooks_(std::move(hooks)) {}

Acme::~Acme() {
  *alive_ = false;
}

Result<std::unique_ptr<Acme>> Acme::create(net::Loop& loop,
                                           AcmeOptions options,
                                           std::string directory,
                                           Hooks hooks) {
  auto out = std::unique_ptr<Acme>(
      new Acme(loop, std::move(options), std::move(directory), std::move(hooks)));
  BILLOW_TRY_VOID(net::parse_url(out->options_.directory));
  BILLOW_TRY_VOID(make_directories(out->directory_ + "/certs", 0700));
  const std::string key_path = out->directory_ + "/account.key";
  if (file_exists(key_path)) {
    out->key_ = BILLOW_TRY(net::JwsKey::read(BILLOW_TRY(read_file(key_path, 64 << 10))));
  } else {
    out->key_ = BILLOW_TRY(net::JwsKey::make());
    BILLOW_TRY_VOID(write_file_atomic(key_path, out->key_->pem(), 0600));
  }
  if (const auto text = read_file(out->directory_ + "/troubles.json"))
    if (auto known = wire::from_json_text<Troubles>(*text))
      out->troubles_ = std::move(known->names);
  out->client_ = BILLOW_TRY(net::HttpClient::create(loop, {.tls = {.ca_path = out->options_.ca}}));
  out->look_timer_ = loop.every(look_period, [at = out.get()] { at->look(); });
  return out;
}

std::string Acme::challenge(std::string_view token) const {
  auto challenges = challenges_.lock();
  const auto found = challenges->find(token);
  return found == challenges->end() ? "" : found->second;
}

void Acme::look() {
  if (order_)
    return;
  const WallTime now = system_clock().wall();
  for (std::vector<std::string>& names : hooks_.wanted()) {
    if (std::ranges::none_of(names, [&](const std::string& name) { return hooks_.due(name); }))
      continue;
    const auto trouble = troubles_.find(names.front());
    if (trouble == troubles_.end() || trouble->second.next_at <= now)
      return begin(std::move(names));
  }
}

void Acme::begin(std::vector<std::string> names) {
  log_info("ordering a certificate for {} from {}", join(names, ", "), options_.directory);
  order_ = std::make_unique<Order>();
  order_->names = std::move(names);
  if (urls_.is_object())
    return with_account([this] { new_order(); });
  fetch({}, options_.directory, [this](const net::Response& answer, const Json& document) {
    if (answer.status != 200 || !document.is_object())
      return failed(fmt::format("{} answers {}", options_.directory, answer.status));
    urls_ = document;
    with_account([this] { new_order(); });
  });
}

void Acme::fetch(net::ClientRequest request, std::string url, Answer done) {
  const auto parsed = net::parse_url(url);
  if (!parsed)
    return failed(fmt::format("the authority names the address \"{}\"", url));
  request.endpoint = parsed->endpoint;
  request.target = parsed->target;
  request.timeout = seconds(30);
  request.body_bytes_max = document_bytes_max;
  request.headers.set("User-Agent", "billow-gateway");
  client_->fetch(std::move(request),
                 [this, alive = alive_, url, done = std::move(done)](Result<net::Response> answer) {
                   if (!*alive || !order_)
                     return;
                   if (!answer)
                     return failed(fmt::format("{}: {}", url, answer.error().message));
                   if (const auto nonce = answer->headers.get("Replay-Nonce"); !nonce.empty())
                     nonces_.emplace_back(nonce);
                   if (nonces_.size() > 8)
                     nonces_.pop_front();
                   const auto document = parse_json(answer->body);
                   done(*answer, document ? *document : Json());
                 });
}

void Acme::post(const std::string& url, std::string payload, Answer done, int tries) {
  if (nonces_.empty()) {
    net::ClientRequest request;
    request.method = net::Method::head;
    return fetch(std::move(request), std::string(urls_["newNonce"].str_or("")),
                 [this, url, payload = std::move(payload), done = std::move(done), tries](
                     const net::Response&, const Json&) {
                   if (nonces_.empty() || tries >= post_tries_max)
                     return failed("the authority sent no nonce");
                   post(url, payload, done, tries + 1);
                 });
  }
  Json header = Json::object({{"nonce", nonces_.front()}, {"url", url}});
  nonces_.pop_front();
  if (account_.empty())
    header.set("jwk", key_->public_jwk());
  else
    header.set("kid", account_);
  auto body = key_->sign(std::move(header), payload);
  if (!body)
    return failed(body.error().message);
  net::ClientRequest request;
  request.method = net::Method::post;
  request.headers.set("Content-Type", "application/jose+json");
  request.body = std::move(*body);
  fetch(std::move(request), url,
        [this, url, payload = std::move(payload), done = std::move(done), tries](
            const net::Response& answer, const Json& document) {
          if (answer.status < 400)
            return done(answer, document);
          const auto type = document["type"].str_or("");
          if (type.ends_with(":badNonce") && tries < post_tries_max)
            return post(url, payload, done, tries + 1);
          failed(fmt::format("{} ({}, {})", document["detail"].str_or("the authority refused"),
                             type.substr(type.rfind(':') + 1), answer.status));
        });
}

void Acme::with_account(std::function<void()> done) {
  if (!account_.empty())
    return done();
  Json account = Json::object({{"termsOfServiceAgreed", true}});
  if (!options_.contact.empty()) {
    Json contact = Json::array();
    contact.push("mailto:" + options_.contact);
    account.set("contact", std::move(contact));
  }
  post(std::string(urls_["newAccount"].str_or("")), account.dump(),
       [this, done = std::move(done)](const net::Response& answer, const Json&) {
         account_ = answer.headers.get("Location");
         if (account_.empty())
           return failed("the authority named no account");
         done();
       });
}

void Acme::new_order() {
  Json names = Json::array();
  for (const std::string& name : order_->names)
    names.push(Json::object({{"type", "dns"}, {"value", name}}));
  post(std::string(urls_["newOrder"].str_or("")),
       Json::object({{"identifiers", std::move(names)}}).dump(),
       [this](const net::Response& answer, const Json& document) {
         order_->url = answer.headers.get("Location");
         order_->finalize = document["finalize"].str_or("");
         for (const Json& each : document["authorizations"].items())
           order_->authorizations.emplace_back(each.str_or(""));
         if (order_->url.empty() || order_->finalize.empty())
           return failed("the authority's order is not complete");
         next_authorization();
       });
}

void Acme::next_authorization() {
  if (order_->authorizations.empty())
    return finalize();
  order_->authorization = std::move(order_->authorizations.front());
  order_->authorizations.pop_front();
  order_->polls = 0;
  post(order_->authorization, "", [this](const net::Response&, const Json& document) {
    if (document["status"].str_or("") == "valid")  // proved a short time ago
      return next_authorization();
    prove(document);
  });
}

void Acme::prove(const Json& authorization) {
  const bool by_dns = !options_.dns_hook.empty();
  const std::string_view wanted = by_dns ? "dns-01" : "http-01";
  const std::string name(authorization["identifier"]["value"].str_or(""));
  for (const Json& challenge : authorization["challenges"].items()) {
    if (challenge["type"].str_or("") != wanted)
      continue;
    order_->token = challenge["token"].str_or("");
    const std::string proof = order_->token + "." + key_->thumbprint();
    // The authority looks when it is told that the proof is there.
    const auto tell = [this, url = std::string(challenge["url"].str_or(""))] {
      post(url, "{}", [this](const net::Response&, const Json&) {
        poll(order_->authorization, [this](const Json& document) {
          if (document["status"].str_or("") != "valid") {
            std::string why = "the authority could not verify the name";
            for (const Json& each : document["challenges"].items())
              if (const auto detail = each["error"]["detail"].str_or(""); !detail.empty())
                why = detail;
            return failed(why);
          }
          challenges_.lock()->clear();
          if (order_->record.empty())
            return next_authorization();
          run_hook("remove", [this](const Status&) { next_authorization(); });
        });
      });
    };
    if (!by_dns) {
      (*challenges_.lock())[order_->token] = proof;
      return tell();
    }
    const auto digest = sha256(proof);
    order_->record = "_acme-challenge." + name;
    order_->value = net::base64url({reinterpret_cast<const char*>(digest.data()), digest.size()});
    return run_hook("add", [this, tell](const Status& ran) {
      if (!ran)
        return failed(ran.error().message);
      tell();
    });
  }
  failed(fmt::format("the authority does not offer {} for {}{}", wanted, name,
                     by_dns ? "" : "; a wildcard needs --acme-dns-hook"));
}

void Acme::run_hook(const char* what, std::function<void(Status)> done) {
  process::Spawn request;
  request.argv = {options_.dns_hook, what, order_->record, order_->value};
  request.deadline = loop_.steady() + hook_patience;
  if (std::string_view(what) == "remove")
    order_->record.clear();
  auto child = process::spawn(request);
  if (!child)
    return done(fail(Code::unavailable, fmt::format("{} cannot be run: {}", options_.dns_hook,
                                                    child.error().message)));
  hook_ = std::move(*child);
  const SteadyTime until = request.deadline;
  hook_timer_ = loop_.every(milliseconds(50), [this, what, until, done = std::move(done)] {
    const auto ended = hook_->poll();
    if (!ended && loop_.steady() < until)
      return;
    Status result;
    if (!ended)
      result = fail(Code::unavailable,
                    fmt::format("{} {} did not finish in time", options_.dns_hook, what));
    else if (!ended->ok())
      result = fail(Code::unavailable, fmt::format("{} {} ended with code {}", options_.dns_hook,
                                                   what, ended->code()));
    hook_.reset();
    const auto then = done;
    hook_timer_.cancel();  // and with it everything that this function holds
    then(std::move(result));
  });
}

// Until the authority has decided.
void Acme::poll(const std::string& url, std::function<void(const Json&)> done) {
  post(url, "",
       [this, url, done = std::move(done)](const net::Response& answer, const Json& document) {
         const auto status = document["status"].str_or("");
         if (status != "pending" && status != "processing")
           return done(document);
         if (++order_->polls > polls_max)
           return failed("the authority did not decide in time");
         const auto later = parse_int(answer.headers.get("Retry-After"), 1, 60);
         wait_timer_ = loop_.after(seconds(later.value_or(1)), [this, url, done] {
           if (order_)
             poll(url, done);
         });
       });
}

void Acme::finalize() {
  const auto made = net::request_server_cert(order_->names);
  const auto bytes =
      made ? net::pem_bytes(made->request_pem) : Result<std::string>(pass(Error(made.error())));
  if (!bytes)
    return failed(bytes.error().message);
  order_->key_pem = made->key_pem;
  order_->polls = 0;
  post(order_->finalize, Json::object({{"csr", net::base64url(*bytes)}}).dump(),
       [this](const net::Response&, const Json&) {
         poll(order_->url, [this](const Json& order) {
           if (order["status"].str_or("") != "valid")
             return failed(fmt::format("the order is {}: {}", order["status"].str_or("lost"),
                                       order["error"]["detail"].str_or("no reason is given")));
           download(std::string(order["certificate"].str_or("")));
         });
       });
}

void Acme::download(const std::string& url) {
  post(url, "", [this](const net::Response& answer, const Json&) {
    const auto names = net::cert_names(answer.body);
    for (const std::string& name : order_->names)
      if (!names || std::ranges::find(*names, name) == names->end())
        return failed(fmt::format("the certificate is not for {}", name));
    const std::string path = directory_ + "/certs/" + order_->names.front();
    Status written = write_file_atomic(path + ".key", order_->key_pem, 0600);
    if (written)
      written = write_file_atomic(path + ".pem", answer.body, 0600);
    finish(written);
  });
}

void Acme::failed(const std::string& why) {
  finish(fail(Code::unavailable, why));
}

void Acme::finish(const Status& result) {
  if (!order_)
    return;
  challenges_.lock()->clear();
  wait_timer_.cancel();
  const std::string name = order_->names.front();
  if (!result) {
    Trouble& trouble = troubles_[name];
    Duration wait = order_again_min;
    for (std::uint32_t i = 0; i < trouble.failures && wait < order_again_max; ++i)
      wait = wait * 2;
    ++trouble.failures;
    trouble.reason = result.error().message;
    trouble.next_at = system_clock().wall() + std::min(wait, order_again_max);
    account_.clear();  // asked for again, in case the authority has forgotten it
    nonces_.clear();
    log_warn("no certificate for {}: {}; the next try is at {}", name, trouble.reason,
             format_utc(trouble.next_at));
  } else {
    troubles_.erase(name);
    log_info("received a certificate for {}", join(order_->names, ", "));
  }
  save_troubles();
  const bool clean = !order_->record.empty() && !result;
  const auto end = [this] {
    // Posted: the caller may still use the order.
    loop_.post([this, alive = alive_] {
      if (!*alive)
        return;
      order_.reset();
      hooks_.changed();
    });
  };
  if (clean)
    return run_hook("remove", [end](const Status&) { end(); });
  end();
}

void Acme::save_troubles() {
  if (const auto written = write_file_atomic(directory_ + "/troubles.json",
                                             wire::to_json_text(Troubles{troubles_}), 0600);
      !written)
    log_warn("{}", written.error().message);
}

}  // namespace billow::gateway
