#include "client/access/sign_in.h"

#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "client/frame/client.h"
#include "client/frame/console.h"
#include "client/frame/shown_token.h"
#include "client/frame/terminal.h"
#include "net/address.h"
#include "process/spawn.h"

namespace billow::client {
namespace {

constexpr Duration browser_within = minutes(10);
constexpr std::size_t request_bytes_max = 16 << 10;

Result<Json> ask_head(net::BlockingClient& head,
                      net::Method method,
                      const std::string& target,
                      const Json& body) {
  net::BlockingClient::Call call;
  call.method = method;
  call.target = target;
  if (method == net::Method::post) {
    call.headers.add("Content-Type", "application/json");
    call.body = body.dump();
  }
  const net::Response response = BILLOW_TRY(head.request(call));
  if (response.status >= 300)
    return pass(error_of(response));
  return parse_json(response.body);
}

Result<Json> provider_of(net::BlockingClient& head, const std::string& wanted, const char* kind) {
  const Json answer = BILLOW_TRY(ask_head(head, net::Method::get, "/v1/auth", {}));
  std::vector<Json> found;
  for (const Json& each : answer["providers"].items())
    if (each["kind"].str_or("") == kind && (wanted.empty() || each["name"].str_or("") == wanted))
      found.push_back(each);
  if (found.size() == 1)
    return found.front();
  std::string names;
  for (const Json& each : found)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", each["name"].str_or("?"));
  if (found.empty())
    return fail(Code::not_found,
                wanted.empty() ? "this head has no such identity provider"
                               : fmt::format("this head has no identity provider \"{}\"", wanted),
                "log in with a token: billow login HEAD --token -");
  return fail(Code::invalid, fmt::format("this head has several identity providers: {}", names),
              "choose one: --provider NAME");
}

std::string base64url_text(std::string_view bytes) {
  std::string text = base64(bytes);
  while (text.ends_with('='))
    text.pop_back();
  for (char& c : text)
    c = c == '+' ? '-' : c == '/' ? '_' : c;
  return text;
}

// Opens the person's browser. Where there is none, the printed address has to do.
void open_browser(const std::string& url) {
  if (variable("DISPLAY").empty() && variable("WAYLAND_DISPLAY").empty())
    return;
  process::Spawn request;
  request.argv = {"xdg-open", url};
  request.detached = true;
  (void)process::spawn(request);
}

void answer_browser(int fd, std::string_view text) {
  const std::string page = fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: "
      "no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\nContent-Length: "
      "{}\r\n\r\n{}",
      text.size(), text);
  (void)write_all(fd, page);
}

// The target of one request, of somebody who connected to this machine.
Result<std::string> target_of(int fd) {
  const timeval patience{5, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string text;
  char buffer[4096];
  while (text.find("\r\n\r\n") == std::string::npos && text.size() < request_bytes_max) {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0)
      break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  const auto words = split(text.substr(0, text.find("\r\n")), ' ');
  if (words.size() != 3 || words[0] != "GET")
    return fail(Code::invalid, "not a request");
  return words[1];
}

// Waits until the browser comes back with the code of this sign-in. Requests from others
// that guess the port are ignored.
Result<net::Request> wait_for_browser(const net::Listener& listener, const std::string& state) {
  const SteadyTime until = system_clock().steady() + browser_within;
  for (;;) {
    const std::int64_t left_ms = (until - system_clock().steady()).ns / 1'000'000;
    pollfd one{listener.fd.get(), POLLIN, 0};
    if (left_ms <= 0 || ::poll(&one, 1, static_cast<int>(left_ms)) == 0)
      return fail(Code::timed_out, "nobody signed in within ten minutes", "try again");
    const Fd peer(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer)
      continue;
    net::Request request;
    const auto target = target_of(peer.get());
    if (!target || !net::parse_target(*target, request) || request.path != "/callback" ||
        request.param("state") != state) {
      answer_browser(peer.get(), "This is not the sign-in that Billow waits for.\n");
      continue;
    }
    const bool good = !request.param("code").empty();
    answer_browser(peer.get(), good ? "You can close this page and go back to the terminal.\n"
                                    : "The sign-in failed. Go back to the terminal.\n");
    if (!good)
      return fail(Code::unauthorized, "the identity provider refused the sign-in", "try again");
    return request;
  }
}

constexpr char not_signed_in[] = "you are not signed in; run the same command to try again";

Result<Json> in_browser(net::BlockingClient& head, const Json& provider, const SignInWish& wish) {
  const net::Listener listener =
      BILLOW_TRY(net::listen_on(BILLOW_TRY(net::parse_endpoint("http://127.0.0.1:0")).address));
  const std::string verifier = random_token(48);
  const Sha256 digest = sha256(verifier);
  const Json begun = BILLOW_TRY(ask_head(
      head, net::Method::post, "/v1/auth/start",
      Json::object({{"provider", provider["name"]},
                    {"redirect", fmt::format("http://127.0.0.1:{}/callback", listener.bound.port)},
                    {"challenge", base64url_text({reinterpret_cast<const char*>(digest.data()),
                                                  digest.size()})}})));
  const std::string url(begun["url"].str_or("")), state(begun["state"].str_or(""));
  const OnInterrupt left(not_signed_in);
  say(
      fmt::format("open this address to sign in (or use --device on a machine without a browser):"
                  "\n  {}",
                  url));
  if (!wish.no_browser)
    open_browser(url);
  const net::Request back = BILLOW_TRY(wait_for_browser(listener, state));
  return ask_head(head, net::Method::post, "/v1/auth/finish",
                  Json::object({{"state", state},
                                {"code", back.param("code")},
                                {"iss", back.param("iss")},
                                {"verifier", verifier}}));
}

Result<Json> by_device(net::BlockingClient& head, const Json& provider) {
  const Json begun = BILLOW_TRY(ask_head(head, net::Method::post, "/v1/auth/device",
                                         Json::object({{"provider", provider["name"]}})));
  const OnInterrupt left(not_signed_in);
  say(fmt::format("open {} and enter the code {}", begun["verification_uri"].str_or("?"),
                  begun["user_code"].str_or("?")));
  std::int64_t interval_s = begun["interval_s"].int_or(5);
  for (;;) {
    ::poll(nullptr, 0, static_cast<int>(interval_s * 1000));
    Json answer = BILLOW_TRY(ask_head(head, net::Method::post, "/v1/auth/device/poll",
                                      Json::object({{"device", begun["device"]}})));
    if (!answer["pending"].bool_or(false))
      return answer;
    interval_s = answer["interval_s"].int_or(interval_s);
  }
}

// GitHub gives a job an address to ask for an ID token; GitLab a variable; others a file.
Result<std::string> workload_token(const std::string& audience, const SignInWish& wish) {
  if (!wish.id_token_file.empty())
    return std::string(trim(BILLOW_TRY(read_file(wish.id_token_file, 64 << 10))));
  if (const std::string given = variable("BILLOW_ID_TOKEN"); !given.empty())
    return given;
  const std::string url = variable("ACTIONS_ID_TOKEN_REQUEST_URL"),
                    key = variable("ACTIONS_ID_TOKEN_REQUEST_TOKEN");
  if (url.empty() || key.empty())
    return fail(Code::not_found, "this is not a CI job with an ID token",
                "GitHub: permissions: id-token: write. GitLab: id_tokens: BILLOW_ID_TOKEN. Others: "
                "--id-token-file FILE");
  const net::Url where =
      BILLOW_TRY(net::parse_url(url + (url.find('?') == std::string::npos ? "?" : "&") +
                                "audience=" + net::percent_encode(audience)));
  if (!where.endpoint.tls && !where.endpoint.address.is_loopback())
    return fail(Code::invalid, "ACTIONS_ID_TOKEN_REQUEST_URL does not use https");
  net::BlockingClient ci({.endpoint = where.endpoint, .tls = {}});
  net::BlockingClient::Call call;
  call.target = where.target;
  call.headers.add("Authorization", "Bearer " + key);
  const net::Response response = BILLOW_TRY(ci.request(call));
  if (response.status != 200)
    return fail(Code::unavailable,
                fmt::format("the CI system gave no ID token (status {})", response.status));
  return std::string(BILLOW_TRY(parse_json(response.body))["value"].str_or(""));
}

}  // namespace

bool offers_sign_in(net::BlockingClient& head) {
  const auto answer = ask_head(head, net::Method::get, "/v1/auth", {});
  if (!answer)
    return false;
  for (const Json& each : (*answer)["providers"].items())
    if (each["kind"].str_or("") == "oidc")
      return true;
  return false;
}

Result<Json> sign_in(net::BlockingClient& head, const SignInWish& wish) {
  const Json provider =
      BILLOW_TRY(provider_of(head, wish.provider, wish.workload ? "workload" : "oidc"));
  if (wish.workload) {
    const std::string token =
        BILLOW_TRY(workload_token(std::string(provider["audience"].str_or("")), wish));
    return ask_head(head, net::Method::post, "/v1/auth/exchange", Json::object({{"token", token}}));
  }
  return wish.device ? by_device(head, provider) : in_browser(head, provider, wish);
}

}  // namespace billow::client
