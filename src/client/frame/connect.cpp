#include "client/frame/connect.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"
#include "base/json.h"
#include "base/platform.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/local_heads.h"
#include "client/frame/shown_token.h"
#include "client/frame/when.h"
#include "net/http/blocking_client.h"
#include "process/spawn.h"

namespace billow::client {
namespace {

constexpr std::size_t small_file_bytes_max = 1 << 20;

Result<std::string> read_token(const std::string& path) {
  auto text = read_file(path, small_file_bytes_max);
  if (!text)
    return pass(std::move(text.error()));
  return std::string(trim(*text));
}

// What the context file says about a head.
Status add_context(const std::string& url, HeadAddress& address) {
  const Json contexts = BILLOW_TRY(read_contexts());
  const Json& context = contexts[url];
  address.token = std::string(context["token"].str_or(""));
  address.tls.ca_path = std::string(context["ca"].str_or(""));
  address.tls.pinned_fingerprint = std::string(context["fingerprint"].str_or(""));
  return {};
}

// A token may carry, behind a dot, the fingerprint of the authority its head is known by.
void split_token(HeadAddress& address) {
  const auto dot = address.token.find('.');
  if (dot == std::string::npos)
    return;
  if (address.tls.ca_path.empty() && address.tls.pinned_fingerprint.empty())
    address.tls.pinned_fingerprint = address.token.substr(dot + 1);
  address.token.resize(dot);
}

// Of several heads of one store ("URL,URL") one leads, and only that one answers. Of a single one
// nothing is asked here.
Result<net::Endpoint> leading_head(const std::string& urls, const net::TlsClientOptions& tls) {
  std::vector<net::Endpoint> endpoints;
  for (const std::string& url : split(urls, ',')) {
    auto endpoint = net::parse_endpoint(trim(url));
    if (!endpoint)
      return pass(std::move(endpoint.error()), "--head " + url);
    endpoints.push_back(std::move(*endpoint));
  }
  for (const net::Endpoint& endpoint : endpoints) {
    if (endpoints.size() == 1)
      break;
    net::BlockingClient http({.endpoint = endpoint, .tls = tls, .connect_timeout = seconds(2)});
    if (http.request({.target = "/healthz", .timeout = seconds(5)}))
      return endpoint;
  }
  return endpoints.front();
}

Result<HeadAddress> named_head(const std::string& url) {
  HeadAddress address;
  address.configured = true;
  BILLOW_TRY_VOID(add_context(url, address));
  if (const std::string token = variable("BILLOW_TOKEN"); !token.empty())
    address.token = token;
  split_token(address);
  address.endpoint = BILLOW_TRY(leading_head(url, address.tls));
  if (address.token.empty() && address.endpoint.address.is_unix()) {
    // A head's own socket lies beside its token.
    const std::string& path = address.endpoint.address.unix_path;
    if (auto token = read_token(path.substr(0, path.rfind('/')) + "/token"))
      address.token = *token;
  }
  if (address.token.empty())
    return fail(Code::unauthorized, fmt::format("no token for {}", url),
                fmt::format("log in with `billow login {}`, or set BILLOW_TOKEN; an admin creates "
                            "tokens with `billow token create`",
                            url));
  split_token(address);
  return address;
}

// The head of all users of this machine; empty: none runs. Only root can put a socket there.
std::string system_socket() {
  const std::string path = system_socket_path();
  struct stat info {};
  const bool there = ::stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
  return there && info.st_uid == 0 ? path : "";
}

std::string account_token_path() {
  const std::string xdg = variable("XDG_STATE_HOME");
  return (xdg.starts_with('/') ? xdg : home_directory() + "/.local/state") +
         "/billow/machine-token.json";
}

}  // namespace

std::string system_socket_path() {
  const std::string named = variable("BILLOW_SYSTEM_SOCKET");
  return named.empty() ? "/run/billow/head.sock" : named;
}

std::string kept_account_token() {
  const auto text = read_file(account_token_path(), small_file_bytes_max);
  const auto json = text ? parse_json(*text) : Result<Json>(Json());
  if (!json || !json->is_object())
    return {};
  const auto until = parse_when((*json)["expires_at"].str_or(""), system_clock().wall());
  if (!until || *until < system_clock().wall() + minutes(10))
    return {};
  return std::string((*json)["token"].str_or(""));
}

// Without a place for it, the next command signs in again.
void keep_account_token(const Json& answer) {
  const std::string path = account_token_path();
  if (make_directories(path.substr(0, path.rfind('/')), 0700))
    (void)write_file_atomic(path, answer.dump() + "\n", 0600, false);
}

std::string home_directory() {
  std::string dir = variable("HOME");
  if (dir.empty())
    if (const passwd* user = ::getpwuid(::geteuid()))
      dir = user->pw_dir;
  return dir;
}

std::string config_directory() {
  const std::string xdg = variable("XDG_CONFIG_HOME");
  return (xdg.empty() ? home_directory() + "/.config" : xdg) + "/billow";
}

std::string cache_directory() {
  const std::string xdg = variable("XDG_CACHE_HOME"), home = home_directory();
  if (xdg.starts_with('/'))
    return xdg + "/billow";
  return home.empty() ? "" : home + "/.cache/billow";
}

std::string contexts_path() {
  return config_directory() + "/contexts.json";
}

Result<Json> read_contexts() {
  const std::string path = contexts_path();
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return Json::object();
  if ((info.st_mode & 077) != 0)
    return fail(Code::forbidden,
                fmt::format("{} contains tokens but other users can read it", path),
                fmt::format("run `chmod 600 {}`", path));
  auto text = read_file(path, small_file_bytes_max);
  if (!text)
    return pass(std::move(text.error()), path);
  auto contexts = parse_json(*text);
  if (!contexts)
    return pass(std::move(contexts.error()), path);
  if (!contexts->is_object())
    return fail(Code::invalid, fmt::format("{} is not a context file", path),
                "delete it and log in again: billow login URL");
  return contexts;
}

Status write_contexts(const Json& contexts) {
  BILLOW_TRY_VOID(make_directories(config_directory(), 0700));
  return write_file_atomic(contexts_path(), contexts.dump() + "\n", 0600, true);
}

std::string data_directory(const std::string& option) {
  if (!option.empty())
    return option;
  if (const std::string dir = variable("BILLOW_DATA"); !dir.empty())
    return dir;
  if (const std::string dir = variable("XDG_DATA_HOME"); !dir.empty())
    return dir + "/billow";
  if (::geteuid() == 0)
    return "/var/lib/billow";
  return home_directory() + "/.local/share/billow";
}

Result<HeadAddress> find_head(const ConnectOptions& options) {
  // --data asks for the local head by name, so it goes before what the environment says.
  std::string url = !options.head.empty()  ? options.head
                    : options.data.empty() ? variable("BILLOW_HEAD")
                                           : std::string();
  // A user who logged in to a head means that one, unless a local head is named.
  if (url.empty() && options.data.empty() && variable("BILLOW_DATA").empty())
    if (const auto contexts = read_contexts())
      url = std::string((*contexts)["current"].str_or(""));
  if (!url.empty())
    return named_head(url);
  HeadAddress address;
  address.data_dir = BILLOW_TRY(meant_data_directory(options.data));
  if (!data_is_named(options.data) && !head_lives_in(address.data_dir))
    if (const std::string socket = system_socket(); !socket.empty()) {
      if (head_ran_in(address.data_dir))
        say(
            fmt::format("note: using the head of this machine ({}); yours, with its data in {}, is "
                        "not running",
                        socket, address.data_dir));
      address.endpoint.address.unix_path = socket;
      address.configured = true;
      address.token = variable("BILLOW_TOKEN");
      address.by_account = address.token.empty();
      if (address.by_account)
        address.token = kept_account_token();
      split_token(address);
      return address;
    }
  address.endpoint.address.unix_path = address.data_dir + "/head.sock";
  if (!file_exists(address.endpoint.address.unix_path)) {
    // The socket may lie elsewhere (a path too long for one); the head says where.
    if (const auto text = read_file(address.data_dir + "/head.json", small_file_bytes_max)) {
      if (const auto json = parse_json(*text); json && !(*json)["socket"].str_or("").empty())
        address.endpoint.address.unix_path = std::string((*json)["socket"].str_or(""));
    }
  }
  if (const std::string token = variable("BILLOW_TOKEN"); !token.empty())
    address.token = token;
  else if (auto file = read_token(address.data_dir + "/token"))
    address.token = std::move(*file);
  else if (file.error().code == Code::forbidden)
    return fail(
        Code::forbidden,
        fmt::format("you have no permission to read the token of the head in {}", address.data_dir),
        "set BILLOW_TOKEN to your own token");
  split_token(address);
  return address;
}

std::string down_command(const std::string& data_dir) {
  return data_dir == data_directory("") ? "billow down"
                                        : "billow down --data " + shell_quote(data_dir);
}

bool head_ran_in(const std::string& data_dir) {
  return file_exists(data_dir + "/token");
}

Status start_head(const std::string& data_dir) {
  ::dprintf(STDERR_FILENO,
            "billow: no head is running; starting one in the background (data in %s, stop it with "
            "`%s`)\n",
            data_dir.c_str(), down_command(data_dir).c_str());
  process::Spawn request;
  request.argv = {platform::this_program(), "up", "--background", "--data", data_dir};
  request.out = STDERR_FILENO;  // our standard output is the job's
  request.err = process::inherited;
  request.group = process::Group::ours;
  auto child = process::spawn(request);
  if (!child)
    return pass(child.error(), "starting a head");
  if (child->wait().ok())
    return {};
  // It has said why. Nobody is away who could return, so nothing is tried again.
  return fail(
      Code::conflict, "the head could not be started",
      fmt::format("`billow up --data {}` shows why again; --data DIR or BILLOW_DATA chooses "
                  "another directory",
                  shell_quote(data_dir)));
}

}  // namespace billow::client
