#include "pool/kubernetes/client.h"

#include <fmt/format.h>

#include "base/text.h"

namespace billow::pool {
namespace {

constexpr Duration call_timeout = seconds(65);  // the server ends ordinary calls after 60 s
constexpr Duration ready_timeout = seconds(10);
constexpr Duration token_file_life = minutes(1);
constexpr std::int64_t plugin_margin_s = 30;  // a credential is renewed before it expires
constexpr std::size_t idle_connections_max = 8;
constexpr int tries_max = 4;
constexpr Duration retry_pause_max = seconds(5);

bool worth_retrying(int status) {
  return status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}

// The server's Retry-After, or longer with each try.
Duration retry_pause(const net::Response& response, int tries) {
  const auto asked = parse_int(response.headers.get("Retry-After"), 0, 3600);
  const Duration pause = asked ? seconds(*asked) : milliseconds(250) * (1 << tries);
  return std::min(pause, retry_pause_max);
}

std::unexpected<Error> stopped() {
  return fail(Code::unavailable, "the head is stopping; the call was ended");
}

Code code_for(int status, std::string_view message) {
  if (worth_retrying(status))
    return Code::unavailable;
  // A quota, a namespace that is being deleted and a missing right are all 403; only the words
  // differ.
  if (status == 403 && message.find("is being terminated") != std::string_view::npos)
    return Code::unavailable;
  if (status == 403 && message.find("exceeded quota") != std::string_view::npos)
    return Code::exhausted;
  return net::code_of_status(status);
}

}  // namespace

Error KubeAnswer::error(std::string_view what) const {
  const std::string_view said = body["message"].str_or("");
  std::string message = fmt::format("{}: {} (HTTP {}", what,
                                    said.empty() ? "the server gave no reason" : said, status);
  if (!audit_id.empty())
    message += ", Audit-Id " + audit_id;
  std::string hint;
  if (status == 401)
    hint = "the credentials are wrong or have expired: check the kubeconfig";
  return {code_for(status, said), std::string(utf8_prefix(message, limits::words_bytes_max)) + ")",
          std::move(hint)};
}

// The credentials in use. They are read anew if the server refused those of that number, if a
// plugin's are about to expire, and every minute if they are in a file that is replaced.
Result<std::shared_ptr<const KubeClient::Login>> KubeClient::login(std::uint64_t refused) {
  auto kept = kept_.lock();
  const SteadyTime now = system_clock().steady();
  const std::int64_t now_s = system_clock().wall().ns / 1'000'000'000;
  if (kept->login && kept->login->number != refused) {
    const Login& current = *kept->login;
    const bool old_file =
        !current.access.token_file.empty() && now - current.read_at > token_file_life;
    const bool expires =
        current.plugin.expires_at_s != 0 && current.plugin.expires_at_s - plugin_margin_s < now_s;
    if (!old_file && !expires)
      return kept->login;
  }
  auto fresh = std::make_shared<Login>();
  fresh->access = BILLOW_TRY(read_access(choice_, around_));
  if (fresh->access.exec)
    fresh->plugin = BILLOW_TRY(run_plugin(*fresh->access.exec));
  fresh->read_at = now;
  fresh->number = kept->next_number++;
  kept->login = std::move(fresh);
  kept->idle.clear();
  return kept->login;
}

Result<net::BlockingClient> KubeClient::connection(const Login& login, bool may_be_kept) {
  if (auto kept = kept_.lock();
      may_be_kept && kept->login && kept->login->number == login.number && !kept->idle.empty()) {
    net::BlockingClient out = std::move(kept->idle.back());
    kept->idle.pop_back();
    return out;
  }
  const ClusterAccess& access = login.access;
  const net::Url url = BILLOW_TRY(net::parse_url(access.server));
  if (!url.endpoint.tls && !url.endpoint.address.is_loopback())
    return fail(Code::invalid, fmt::format("{} is not encrypted", access.server),
                "use https://; plain http:// works only on this machine (kubectl proxy)");
  const bool from_plugin = !login.plugin.cert_pem.empty();
  return net::BlockingClient(
      {.endpoint = url.endpoint,
       .tls = {.ca_pem = access.ca_pem,
               .cert_pem = from_plugin ? login.plugin.cert_pem : access.cert_pem,
               .key_pem = from_plugin ? login.plugin.key_pem : access.key_pem,
               .server_name = access.tls_server_name,
               .accept_any_cert = access.accept_any_cert}});
}

Result<net::Response> KubeClient::send(const Login& login, net::BlockingClient::Call call) {
  const ClusterAccess& access = login.access;
  const net::Url url = BILLOW_TRY(net::parse_url(access.server));
  std::string prefix = url.target;
  while (prefix.ends_with('/'))
    prefix.pop_back();
  call.target = prefix + call.target;
  const std::string& token = login.plugin.token.empty() ? access.token : login.plugin.token;
  if (!token.empty())
    call.headers.set("Authorization", "Bearer " + token);
  if (!access.as_user.empty())
    call.headers.set("Impersonate-User", access.as_user);
  for (const std::string& group : access.as_groups)
    call.headers.add("Impersonate-Group", group);
  net::BlockingClient client = BILLOW_TRY(connection(login, !call.on_chunk));
  auto response = client.request(call);
  if (!response)
    // Whether the server acted on it is not known in any of these cases.
    return fail(response.error().code == Code::invalid ? Code::invalid : Code::unavailable,
                fmt::format("Kubernetes API server: {}", response.error().message));
  if (auto kept = kept_.lock(); !call.on_chunk && kept->login &&
                                kept->login->number == login.number &&
                                kept->idle.size() < idle_connections_max)
    kept->idle.push_back(std::move(client));
  return response;
}

Status KubeClient::wait_for_turn() {
  const Duration wait = bucket_.lock()->take(system_clock().steady());
  if (!stop_.pause(wait))
    return stopped();
  return {};
}

// A server that starts refuses everybody until it has read the roles; it says that it is ready a
// little later. So a refusal counts only if the server is ready.
bool KubeClient::is_ready(const Login& login) {
  if (!wait_for_turn())
    return true;
  net::BlockingClient::Call call{.target = "/readyz", .timeout = ready_timeout};
  call.headers.set("User-Agent", "billow");
  call.watch_fd = stop_.fd();
  call.on_watch = [] {
    return false;
  };
  const auto response = send(login, std::move(call));
  return response && response->status == 200;
}

Result<KubeAnswer> KubeClient::with_retries(net::BlockingClient::Call call) {
  call.headers.set("User-Agent", "billow");
  call.watch_fd = stop_.fd();
  call.on_watch = [] {
    return false;
  };
  std::uint64_t refused = 0;
  for (int tries = 0;; ++tries) {
    const auto current = BILLOW_TRY(login(refused));
    BILLOW_TRY_VOID(wait_for_turn());
    const net::Response response = BILLOW_TRY(send(*current, call));
    if (stop_.raised())  // what has arrived may be a part of the answer
      return stopped();
    if (response.status == 401 && refused == 0) {
      refused = current->number;
      continue;
    }
    const bool is_last = tries + 1 == tries_max;
    const bool too_early = response.status == 403 && !is_last && !is_ready(*current);
    if ((worth_retrying(response.status) || too_early) && !is_last) {
      if (!stop_.pause(retry_pause(response, tries)))
        return stopped();
      continue;
    }
    KubeAnswer answer{.status = response.status,
                      .body = {},
                      .audit_id = std::string(response.headers.get("Audit-Id"))};
    auto body = parse_json(response.body);
    if (body)
      answer.body = std::move(*body);
    else if (answer.ok() && !call.on_chunk)
      return fail(Code::unavailable, fmt::format("{} did not answer with JSON: {}",
                                                 current->access.server, body.error().message));
    return answer;
  }
}

Result<KubeAnswer> KubeClient::ask(const KubeCall& call) {
  net::BlockingClient::Call http{
      .method = call.method, .target = call.target, .timeout = call_timeout};
  http.headers.set("Accept", call.accept);
  if (!call.body.is_null()) {
    http.body = call.body.dump();
    http.headers.set("Content-Type", call.content_type);
  }
  return with_retries(std::move(http));
}

Result<KubeAnswer> KubeClient::follow(const std::string& target,
                                      Duration patience,
                                      const std::function<bool(std::string_view)>& on_line) {
  std::string pending;
  const auto on_chunk = [&](std::string_view piece) {
    pending.append(piece);
    std::size_t from = 0;
    for (;;) {
      const auto end = pending.find('\n', from);
      if (end == std::string::npos)
        break;
      if (!on_line(std::string_view(pending).substr(from, end - from)))
        return false;
      from = end + 1;
    }
    pending.erase(0, from);
    return pending.size() <= limits::client_body_bytes_max;
  };
  net::BlockingClient::Call http{.target = target, .timeout = patience, .on_chunk = on_chunk};
  http.headers.set("Accept", "application/json");
  return with_retries(std::move(http));
}

Result<std::string> KubeClient::server() {
  return BILLOW_TRY(login(0))->access.server;
}

Result<std::string> KubeClient::context() {
  return BILLOW_TRY(login(0))->access.context;
}

}  // namespace billow::pool
