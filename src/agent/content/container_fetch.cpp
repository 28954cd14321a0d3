#include "agent/content/container_fetch.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <thread>
#include <vector>

#include "agent/content/file_socket.h"
#include "agent/isolate/helper.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "core/wire/codec.h"
#include "process/sealed_memory_linux.h"

namespace billow::agent {
namespace {

// The fetching process gets only what it needs to reach a registry from the agent's environment.
std::vector<std::string> helper_env() {
  std::vector<std::string> env = {
      "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
  for (const char* name : {"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                           "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"})
    if (const char* value = std::getenv(name))
      env.push_back(fmt::format("{}={}", name, value));
  return env;
}

std::optional<Identity> identity_of(const UserRecord& user) {
  if (user.identity.uid == ::geteuid())
    return std::nullopt;
  return user.identity;
}

Error error_of(const Json& error) {
  return {static_cast<Code>(error["code"].int_or(static_cast<int>(Code::unavailable))),
          std::string(error["message"].str_or("")), std::string(error["hint"].str_or(""))};
}

// Collects the JSON lines of `billow box`: progress notes, then the result, "busy" (another process
// holds the store) or an error.
template <class T>
struct HelperOutput {
  const char* result_key;
  Result<std::optional<T>> result = fail(Code::internal,
                                         "the process that fetches it ended without a result",
                                         "see the agent's log on this node");
  std::string last_note;

  void take(std::string_view line, const FetchControl& control) {
    const auto parsed = parse_json(line);
    if (!parsed)
      return;
    if (const auto* text = parsed->find("note")) {
      last_note = std::string(text->str_or(""));
      control.note(last_note);
    }
    if (const auto* error = parsed->find("error"))
      result = pass(error_of(*error));
    if (parsed->find("busy"))
      result = std::optional<T>();
    if (const auto* found = parsed->find(result_key)) {
      auto value = wire::from_json_text<T>(found->dump());
      if (value)
        result = std::move(*value);
      else
        result = pass(value.error());
    }
  }
};

Helper make_helper(std::vector<std::string> args,
                   const UserRecord& user,
                   const FetchControl& control,
                   std::string what) {
  Helper out;
  out.argv = std::move(args);
  out.argv.insert(out.argv.begin(), {executable_dir() + "/billow", "box"});
  out.env = helper_env();
  out.identity = identity_of(user);
  out.cgroups = control.cgroups;
  out.cancelled = control.cancelled;
  out.what = std::move(what);
  out.quiet_max = control.quiet_max;
  out.within = limits::container_prepared_within;
  return out;
}

Status send_to_unpacker(int fd, std::string_view data) {
  if (!file_socket::send_all(fd, data))
    return fail(Code::unavailable, "the process that unpacks the environment has ended");
  return {};
}

std::string megabytes(std::uint64_t bytes) {
  return fmt::format("{}", bytes / 1'000'000);
}

// Fetches an environment's content from the head and writes it to a socket from which the helper
// unpacks it.
class EnvironmentDownload {
 public:
  EnvironmentDownload(const EnvironmentRequest& request, const FetchControl& control)
      : request_(request), control_(control), last_note_at_(system_clock().steady()) {}

  std::uint64_t bytes() const { return bytes_; }

  Status run(int socket) {
    control_.note(fmt::format("fetching environment {}", request_.name));
    const Status done = fetch_content(
        request_.source, request_.digest,
        {.list = [socket](std::string_view list) { return send_list(socket, list); },
         .piece = [socket](std::string_view piece) { return send_to_unpacker(socket, piece); },
         .progress = [this](std::uint64_t have, std::uint64_t total) { progress(have, total); },
         .cancelled =
             [this] {
               return control_.cancelled->load();
             }});
    ::shutdown(socket, SHUT_WR);
    return done;
  }

 private:
  // The list of files goes first, preceded by its length in 8 bytes, least significant first.
  static Status send_list(int socket, std::string_view list) {
    std::string length;
    for (int i = 0; i < 8; ++i)
      length += static_cast<char>(list.size() >> (8 * i));
    return send_to_unpacker(socket, length + std::string(list));
  }
  void progress(std::uint64_t have, std::uint64_t total) {
    bytes_ = have;
    const SteadyTime now = system_clock().steady();
    if (now - last_note_at_ <= milliseconds(500))
      return;
    last_note_at_ = now;
    control_.note(fmt::format("fetching environment {}: {} of {} MB", request_.name,
                              megabytes(have), megabytes(total)));
  }

  const EnvironmentRequest& request_;
  const FetchControl& control_;
  SteadyTime last_note_at_;
  std::atomic<std::uint64_t> bytes_ = 0;
};

std::vector<std::string> environment_args(const EnvironmentRequest& request) {
  return {"--store", request.store, "--environment", request.digest,
          "--key",   request.key,   "--limit",       std::to_string(request.bytes_max)};
}

// Marks an environment that the store already has as used by this task. not_found: it was removed
// in the meantime.
Result<std::optional<container::Environment>> hold_environment(const EnvironmentRequest& request,
                                                               const FetchControl& control) {
  HelperOutput<container::Environment> output{.result_key = "environment"};
  Helper hold =
      make_helper(environment_args(request), request.user, control, "environment " + request.name);
  hold.argv.emplace_back("--hold");
  hold.line = [&](std::string_view line) {
    output.take(line, control);
  };
  BILLOW_TRY(run_helper(hold));
  return output.result;
}

}  // namespace

Result<std::optional<container::LocalImage>> fetch_image(const ImageRequest& request,
                                                         const FetchControl& control) {
  HelperOutput<container::LocalImage> output{.result_key = "image"};
  Helper helper = make_helper({"--store", request.store, "--image", request.image, "--key",
                               request.key, "--limit", std::to_string(request.bytes_max)},
                              request.user, control, "image " + request.image);
  if (!request.terms.signed_by.empty())
    helper.argv.insert(helper.argv.end(), {"--signed-by", base64(request.terms.signed_by)});
  if (request.terms.from_registry)
    helper.argv.emplace_back("--from-registry");
  // As its standard input: neither its arguments, its variables nor a file hold the login.
  Fd login;
  if (!request.login.secret.empty()) {
    login = BILLOW_TRY(process::sealed_memory("login", request.login.value));
    helper.input = login.get();
    helper.argv.insert(helper.argv.end(), {"--registry-secret", request.login.secret});
  }
  helper.line = [&](std::string_view line) {
    output.take(line, control);
  };
  if (const auto code = run_helper(helper); !code) {
    if (code.error().code != Code::timed_out)
      return pass(code.error());
    return fail(
        Code::timed_out,
        code.error().message +
            (output.last_note.empty() ? "" : fmt::format("; last step: {}", output.last_note)),
        "check that the registry is reachable from this node and fast enough");
  }
  return output.result;
}

// A thread downloads while a process of the user unpacks; a socket pair couples their speeds.
Result<std::optional<container::Environment>> fetch_environment(const EnvironmentRequest& request,
                                                                const FetchControl& control) {
  if (container::find_environment(request.store, request.digest)) {
    auto held = hold_environment(request, control);
    if (held || held.error().code != Code::not_found)
      return held;
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair", errno);
  Fd ours(ends[0]), theirs(ends[1]);
  Status fetched;
  EnvironmentDownload download(request, control);
  std::thread downloader([&] { fetched = download.run(ours.get()); });
  HelperOutput<container::Environment> output{.result_key = "environment"};
  Helper helper =
      make_helper(environment_args(request), request.user, control, "environment " + request.name);
  helper.input = theirs.get();
  helper.line = [&](std::string_view line) {
    output.take(line, control);
  };
  helper.progress = [&] {
    return download.bytes();
  };
  const auto code = run_helper(helper);
  theirs.reset();  // otherwise the downloader would wait for a reader that has ended
  ::shutdown(ours.get(), SHUT_RDWR);
  downloader.join();
  if (!code && code.error().code == Code::timed_out)
    return fail(
        Code::timed_out,
        fmt::format("{}; {} MB had arrived", code.error().message, megabytes(download.bytes())),
        "check that the head is reachable from this node and fast enough");
  // A failed download is the cause of what the helper reports, unless the helper ended first.
  if (!fetched && fetched.error().code != Code::unavailable)
    return pass(fetched.error());
  if (!code)
    return pass(code.error());
  if (!output.result && !fetched)
    return pass(fetched.error());
  if (const auto& out = output.result; out && *out)
    log_info("environment {} ({}) fetched: {} MB downloaded, {} MB unpacked", request.name,
             request.digest.substr(0, 12), megabytes(download.bytes()),
             megabytes(static_cast<std::uint64_t>((*out)->bytes)));
  return output.result;
}

}  // namespace billow::agent
