// Ports and secure shells of running jobs, through the head, wherever their node is: port-forward,
// ssh, ssh-config, ssh-proxy.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/client.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/jobs/ending.h"
#include "client/jobs/tunnel.h"
#include "client/request/job_names.h"
#include "client/request/job_request.h"
#include "net/ssh_key.h"
#include "process/spawn.h"

namespace billow::client {
namespace {

constexpr OptionSpec rank_option[] = {{"rank", 0, "N", "rank of the node in a gang (default 0)"}};
constexpr OptionSpec ssh_config_options[] = {
    {"all", 0, nullptr,
     "one entry, Host billow-*, for all your jobs: billow-NUMBER or billow-NAME is the host"},
    {"wake", 0, nullptr,
     "a new connection resumes a suspended job (default: it waits until the job is resumed)"},
};
constexpr OptionSpec ssh_proxy_options[] = {
    {"by-alias", 0, nullptr, "JOB is the host name that ssh was given, such as billow-12"},
    {"wake", 0, nullptr, "resume the job if it is suspended"},
};
constexpr OptionSpec ssh_options[] = {
    {"rank", 0, "N", "rank of the node in a gang (default 0)"},
    {"identity", 'i', "FILE", "use this key (default: a key that Billow creates)", false,
     Completes::file}};
constexpr std::size_t connections_max = 128;

Result<Client> client_of(const Parsed& p) {
  return Client::create({.head = p.get("head"), .data = p.get("data")});
}

std::string tunnel_target(const Parsed& p,
                          const std::string& job,
                          const std::string& port,
                          const std::string& key = {}) {
  return with_query(path_of_job(job, "tunnel"),
                    {{"port", port}, {"rank", p.get("rank")}, {"key", key}});
}

Result<std::string> job_operand(const Parsed& p, const char* command) {
  if (p.operands.empty())
    return fail(Code::invalid, "no job given",
                fmt::format("for example: billow {} 12; see `billow ps`", command));
  BILLOW_TRY_VOID(check_job_word(p.operands[0]));
  return p.operands[0];
}

// What the head says of a job that is to be connected to; an error where that makes no sense.
Result<Json> running_job(Client& client, const std::string& job) {
  Json document = BILLOW_TRY(client.get(path_of_job(job)));
  if (document["final"].bool_or(false))
    return fail(Code::conflict,
                fmt::format("job {} has already ended ({})", job, document["state"].str_or("?")),
                "choose a running job: see `billow ps`");
  return document;
}

// A suspended job can be connected to when it runs again. Editors reconnect by themselves, also
// while nobody is there, so a new connection resumes the job only where a person wants that.
Status wait_while_suspended(Client& client, const std::string& job, bool wake) {
  constexpr Duration patience = minutes(10);
  constexpr int look_every_ms = 200;
  const SteadyTime begun = system_clock().steady();
  bool told = false;
  for (;; ::poll(nullptr, 0, look_every_ms)) {
    const Json document = BILLOW_TRY(running_job(client, job));
    const std::string_view phase = document.at("suspension", "phase").str_or("");
    if (phase.empty())
      return {};
    if (!std::exchange(told, true)) {
      say(fmt::format("job {} is {}; {}", job, phase,
                      wake ? "resuming it"
                           : fmt::format("waiting until it is resumed (`billow resume {}`)", job)));
      if (wake && phase != "resuming")
        BILLOW_TRY(client.post(path_of_job(job, "resume"), "{}"));
    }
    if (system_clock().steady() - begun > patience)
      return fail(Code::unavailable, fmt::format("job {} is still {}", job, phase),
                  fmt::format("see `billow explain {}`", job));
  }
}

// ---- port-forward

struct Forward {
  int local = 0, port = 0;
};
// "8080", "9000:8080", ":8080" (any free port here)
Result<Forward> parse_forward(std::string_view text) {
  const auto colon = text.find(':');
  const auto bad = [&] {
    return fail(Code::invalid, fmt::format("\"{}\" is not a port", text),
                "use 8080, 9000:8080 for another local port, or :8080 for any free local port");
  };
  const auto port =
      parse_int(colon == std::string_view::npos ? text : text.substr(colon + 1), 1, 65535);
  if (!port)
    return bad();
  Forward out{static_cast<int>(*port), static_cast<int>(*port)};
  if (colon == std::string_view::npos)
    return out;
  const auto local =
      colon == 0 ? Result<std::int64_t>(0) : parse_int(text.substr(0, colon), 0, 65535);
  if (!local)
    return bad();
  out.local = static_cast<int>(*local);
  return out;
}

// On this machine's own address only.
Result<Fd> listen_on(int port, int& bound) {
  Fd fd(::socket(AF_INET, SOCK_STREAM, 0));
  if (!fd)
    return fail_errno("socket", errno);
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd.get(), 128) != 0) {
    if (errno == EADDRINUSE)
      return fail(Code::conflict, fmt::format("port {} is in use on this machine", port),
                  fmt::format("choose another: {}:PORT, or :PORT for any free one", port + 1));
    return fail_errno(fmt::format("port {}", port), errno);
  }
  socklen_t length = sizeof address;
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
  bound = ntohs(address.sin_port);
  return fd;
}

class Forwarder {
 public:
  Forwarder(const Parsed& p,
            std::string job,
            HeadAddress head,
            std::unique_ptr<net::Loop> loop,
            std::unique_ptr<net::HttpClient> client)
      : parsed_(p),
        job_(std::move(job)),
        head_(std::move(head)),
        loop_(std::move(loop)),
        client_(std::move(client)) {}

  Status add(const Forward& forward) {
    int bound = 0;
    Fd listener = BILLOW_TRY(listen_on(forward.local, bound));
    const int fd = listener.get();
    watches_.push_back(
        loop_->on_readable(fd, [this, fd, port = forward.port] { accept(fd, port); }));
    listeners_.push_back(std::move(listener));
    print(fmt::format("127.0.0.1:{} → port {} of job {}\n", bound, forward.port, job_));
    return {};
  }
  int run() {
    const auto quit = loop_->on_signal({SIGINT, SIGTERM, SIGHUP}, [this](int) {
      say(goes_on("no longer forwarding", {job_}));
      loop_->stop();
    });
    const auto look = loop_->every(seconds(2), [this] { look_at_job(); });
    loop_->run();
    for (auto& [id, open] : open_)
      open.relay->stop();
    loop_->run_until([this] { return open_.empty(); }, milliseconds(200));
    return code_;
  }

 private:
  struct Open {
    Fd fd;
    std::shared_ptr<TunnelRelay> relay;
  };
  void accept(int listener, int port) {
    Fd fd(::accept(listener, nullptr, nullptr));
    if (!fd)
      return;
    if (open_.size() >= connections_max) {
      complain(fmt::format("refused a connection: more than {} are open", connections_max));
      return;
    }
    ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    const std::uint64_t id = next_++;
    Open& open = open_[id];
    open.fd = std::move(fd);
    open.relay = TunnelRelay::start(
        *loop_, *client_, head_, tunnel_target(parsed_, job_, std::to_string(port)),
        {open.fd.get(), open.fd.get(), true},
        {.opened = {}, .closed = [this, id](const std::string& trouble) {
           if (!trouble.empty()) {
             complain(trouble);
             look_at_job();
           }
           open_.erase(id);
         }});
  }
  // The same trouble once: a browser that tries again every second would fill the terminal.
  void complain(const std::string& trouble) {
    if (trouble == last_trouble_)
      return;
    last_trouble_ = trouble;
    say(trouble);
  }
  void look_at_job() {
    net::ClientRequest request;
    request.endpoint = head_.endpoint;
    request.target = path_of_job(job_);
    request.headers.set("Authorization", "Bearer " + head_.token);
    client_->fetch(std::move(request), [this](Result<net::Response> answer) {
      if (!answer || answer->status >= 500)
        return;  // a head that is away for a moment ends nothing
      const auto json = parse_json(answer->body);
      if (answer->status < 400 && json && !(*json)["final"].bool_or(false))
        return;
      say(answer->status < 400
              ? fmt::format("job {} has ended", job_)
              : std::string((*json)["detail"].str_or("the job is no longer visible")));
      code_ = answer->status < 400 ? 0 : 1;
      loop_->stop();
    });
  }

  const Parsed& parsed_;
  std::string job_;
  HeadAddress head_;
  std::unique_ptr<net::Loop> loop_;
  std::unique_ptr<net::HttpClient> client_;
  std::vector<Fd> listeners_;
  std::vector<net::Watch> watches_;
  std::map<std::uint64_t, Open> open_;
  std::uint64_t next_ = 1;
  std::string last_trouble_;
  int code_ = 0;
};

int cmd_port_forward(const Parsed& p) {
  const auto word = job_operand(p, "port-forward");
  if (!word)
    return report_usage(word.error());
  if (p.operands.size() < 2)
    return report_usage({Code::invalid, "no port given",
                         fmt::format("for example: billow port-forward {} 8080", *word)});
  std::vector<Forward> forwards;
  for (std::size_t i = 1; i < p.operands.size(); ++i) {
    const auto forward = parse_forward(p.operands[i]);
    if (!forward)
      return report_usage(forward.error());
    forwards.push_back(*forward);
  }
  auto client = client_of(p);
  if (!client)
    return report(client.error());
  const auto job = job_of(*client, *word, NameUse::look);
  if (!job)
    return report(job.error());
  if (const auto document = running_job(*client, *job); !document)
    return report(document.error());
  auto loop = std::make_unique<net::Loop>();
  auto http = net::HttpClient::create(*loop, {.tls = client->address().tls});
  if (!http)
    return report(http.error());
  Forwarder forwarder(p, *job, client->address(), std::move(loop), std::move(*http));
  for (const Forward& forward : forwards)
    if (const Status added = forwarder.add(forward); !added)
      return report(added.error());
  ::signal(SIGPIPE, SIG_IGN);
  return forwarder.run();
}

// ---- ssh

std::string ssh_directory() {
  const std::string contexts = contexts_path();
  return contexts.substr(0, contexts.rfind('/')) + "/ssh";
}
std::string alias_of(const std::string& job, const Parsed& p) {
  return "billow-" + job + (p.has("rank") ? "-" + p.get("rank") : "");
}
std::string known_hosts_of(const std::string& alias) {
  return ssh_directory() + "/known-" + alias;
}

// The key that enters: a given one, or one that is made for this and nothing else.
Result<std::string> identity_of(const Parsed& p) {
  if (p.has("identity")) {
    if (!file_exists(p.get("identity") + ".pub"))
      return fail(Code::not_found, fmt::format("{}.pub does not exist", p.get("identity")),
                  "the public key must be in the same directory as the private key");
    char resolved[4096];
    return ::realpath(p.get("identity").c_str(), resolved) ? std::string(resolved)
                                                           : p.get("identity");
  }
  const std::string path = ssh_directory() + "/id_ed25519";
  if (file_exists(path) && file_exists(path + ".pub"))
    return path;
  BILLOW_TRY_VOID(make_directories(ssh_directory(), 0700));
  const SshKey key = make_ssh_key("billow");
  BILLOW_TRY_VOID(write_file_atomic(path, key.private_file, 0600));
  BILLOW_TRY_VOID(write_file_atomic(path + ".pub", key.public_line + "\n", 0644));
  return path;
}

// As ssh_config quotes: it knows double quotes and no escapes in them.
std::string quoted(const std::string& text) {
  return text.find_first_of(" \t'") == std::string::npos ? text : "\"" + text + "\"";
}

// `to`: what the proxy is given as its job.
std::string proxy_command(const Parsed& p,
                          const std::string& to,
                          const std::string& identity,
                          bool wake) {
  std::string proxy = shell_quote(executable_dir() + "/billow") + " ssh-proxy " + to;
  if (wake)
    proxy += " --wake";
  if (p.has("rank"))
    proxy += " --rank " + p.get("rank");
  if (p.has("identity"))
    proxy += " --identity " + shell_quote(identity);
  if (p.has("head"))
    proxy += " --head " + shell_quote(p.get("head"));
  if (p.has("data"))
    proxy += " --data " + shell_quote(p.get("data"));
  else if (const char* data = std::getenv("BILLOW_DATA"); data && !p.has("head"))
    proxy += std::string(" --data ") + shell_quote(data);
  return proxy;
}

// One entry for all jobs, also those to come: `ssh billow-12`, `ssh billow-train`.
Result<std::string> config_of_all(const Parsed& p, Client& client) {
  const Json status = BILLOW_TRY(client.get("/v1/status"));
  const std::string identity = BILLOW_TRY(identity_of(p)),
                    name(status.at("you", "user").str_or(""));
  const Json mine = BILLOW_TRY(
      client.get(with_query("/v1/jobs", {{"user", name}, {"state", "all"}, {"limit", "1"}})));
  std::string user = name;
  for (const Json& job : mine["jobs"].items())
    user = job["unix_user"].str_or(user);
  return fmt::format(
      "Host billow-*\n  User {}\n  IdentityFile {}\n  IdentitiesOnly yes\n"
      "  UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
      "  ProxyCommand {}\n",
      user, quoted(identity), quoted(known_hosts_of("%n")),
      proxy_command(p, "--by-alias %n", identity, p.has("wake")));
}

Result<std::string> config_text(const Parsed& p,
                                Client& client,
                                const std::string& job,
                                bool wake) {
  const Json document = BILLOW_TRY(running_job(client, job));
  const std::string identity = BILLOW_TRY(identity_of(p)), alias = alias_of(job, p);
  // Whom the job runs as on its node.
  std::string user(document["unix_user"].str_or(document["user"].str_or("")));
  const std::string proxy = proxy_command(p, job, identity, wake);
  return fmt::format(
      "Host {0}\n  HostName {0}\n  HostKeyAlias {0}\n  User {1}\n  IdentityFile {2}\n  "
      "IdentitiesOnly yes\n  UserKnownHostsFile {3}\n"
      "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  ProxyCommand {4}\n",
      alias, user, quoted(identity), quoted(known_hosts_of(alias)), proxy);
}

int cmd_ssh_config(const Parsed& p) {
  const bool all = p.has("all");
  const auto word = all ? Result<std::string>("") : job_operand(p, "ssh-config");
  if (!word || (all && !p.operands.empty()))
    return report_usage(word ? Error{Code::invalid, "give either a job or --all, not both", ""}
                             : word.error());
  auto client = client_of(p);
  if (!client)
    return report(client.error());
  if (all) {
    const auto text = config_of_all(p, *client);
    if (text)
      print(*text);
    return text ? 0 : report(text.error());
  }
  const auto job = job_of(*client, *word, NameUse::look);
  if (!job)
    return report(job.error());
  const auto text = config_text(p, *client, *job, p.has("wake"));
  if (!text)
    return report(text.error());
  print(*text);
  return 0;
}

int cmd_ssh(const Parsed& p) {
  const auto word = job_operand(p, "ssh");
  if (!word)
    return report_usage(word.error());
  auto client = client_of(p);
  if (!client)
    return report(client.error());
  const auto job = job_of(*client, *word, NameUse::look);
  if (!job)
    return report(job.error());
  const auto text = config_text(p, *client, *job, true);
  if (!text)
    return report(text.error());
  const std::string alias = alias_of(*job, p), path = ssh_directory() + "/config-" + alias;
  if (const Status written = write_file_atomic(path, *text, 0600); !written)
    return report(written.error());
  std::vector<std::string> words = {"ssh", "-F", path};
  // ssh begins in the home directory, but the user wants the job's working directory. Single
  // quotes mean the same in every shell.
  const std::vector<std::string> command(p.operands.begin() + 1, p.operands.end());
  if (command.empty() && ::isatty(STDIN_FILENO))
    words.emplace_back("-t");
  words.push_back(alias);
  if (command.empty())
    words.emplace_back(
        "exec /bin/sh -c 'cd \"${BILLOW_WORKDIR:-.}\"; exec \"${SHELL:-/bin/sh}\" -l'");
  else
    words.push_back(
        "exec /bin/sh -c 'cd \"${BILLOW_WORKDIR:-.}\"; exec \"${SHELL:-/bin/sh}\" -c \"$1\"' sh " +
        shell_quote(join(command, " ")));
  const Status failed =
      process::replace_this_program({.argv = words, .signals = process::Signals::keep_ignored});
  return report({Code::unsupported,
                 fmt::format("ssh could not be started: {}", failed.error().message),
                 "install the OpenSSH client, or use `billow shell` and `billow attach`"});
}

// Between ssh and a shell in the job's place: what ssh's ProxyCommand runs.
int cmd_ssh_proxy(const Parsed& p) {
  auto word = job_operand(p, "ssh-proxy");
  if (!word)
    return report_usage(word.error());
  const std::string host = *word;
  if (p.has("by-alias")) {
    if (!word->starts_with("billow-"))
      return report_usage({Code::invalid, fmt::format("{} does not begin with billow-", host), ""});
    word->erase(0, std::string_view("billow-").size());
  }
  const auto identity = identity_of(p);
  if (!identity)
    return report(identity.error());
  const auto key = read_file(*identity + ".pub", 16 << 10);
  if (!key)
    return report(key.error());
  auto client = client_of(p);
  if (!client)
    return report(client.error());
  const auto job = job_of(*client, *word, NameUse::look);
  if (!job)
    return report(job.error());
  if (const Status awake = wait_while_suspended(*client, *job, p.has("wake")); !awake)
    return report(awake.error());
  net::Loop loop;
  auto http = net::HttpClient::create(loop, {.tls = client->address().tls});
  if (!http)
    return report(http.error());
  ::signal(SIGPIPE, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO})
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  const std::string alias = p.has("by-alias") ? host : alias_of(*job, p);
  std::string trouble;
  // The head has vouched for this key; ssh reads the file only after the first bytes from there,
  // which come after it was written.
  const auto opened = [&](const Json& open) -> Status {
    const std::string host_key(open["host_key"].str_or(""));
    if (!is_ssh_public_key(host_key))
      return fail(Code::invalid, "the node sent no valid OpenSSH host key",
                  "check that the node's agent is as new as this program");
    BILLOW_TRY_VOID(make_directories(ssh_directory(), 0700));
    return write_file_atomic(known_hosts_of(alias), fmt::format("{} {}\n", alias, host_key), 0600);
  };
  struct stat in {
  }, out{};
  const bool one = ::fstat(STDIN_FILENO, &in) == 0 && ::fstat(STDOUT_FILENO, &out) == 0 &&
                   S_ISSOCK(in.st_mode) && in.st_ino == out.st_ino;
  const auto relay = TunnelRelay::start(loop, **http, client->address(),
                                        tunnel_target(p, *job, "ssh", std::string(trim(*key))),
                                        one ? TunnelEnds{STDIN_FILENO, STDIN_FILENO, true}
                                            : TunnelEnds{STDIN_FILENO, STDOUT_FILENO, false},
                                        {.opened = opened, .closed = [&](const std::string& why) {
                                           trouble = why;
                                           loop.stop();
                                         }});
  loop.run();
  return trouble.empty() ? 0 : report({Code::unavailable, trouble, ""});
}

}  // namespace

void add_forward_commands(CommandTable& table) {
  constexpr const char* group = "jobs";
  table.push_back(
      {.name = "port-forward",
       .summary = "forward local ports to ports of a running job",
       .example = "billow port-forward 12 8888\nbillow port-forward 12 9000:8080 :6006",
       .run = cmd_port_forward,
       .usage = "JOB [LOCAL:]PORT…",
       .details = "Listens on loopback only and forwards connections through the head to the job's "
                  "port, on whatever node the job runs.\nEnds with the job or with Ctrl-C.",
       .options = {rank_option},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = group,
       .prints_json = false});
  table.push_back(
      {.name = "ssh",
       .summary = "open a shell in a running job with ssh",
       .example = "billow ssh 12\nbillow ssh 12 -- nvidia-smi",
       .run = cmd_ssh,
       .usage = "JOB [--] [COMMAND…]",
       .details = "The shell runs as the job's user in its working directory, with its GPUs and "
                  "its variables (except secrets), within its limits and inside\nits container, if "
                  "it has one. A suspended job is resumed. The node needs sshd installed; no port "
                  "is opened there.",
       .options = {ssh_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = group,
       .prints_json = false});
  table.push_back(
      {.name = "ssh-config",
       .summary =
           "print an ssh configuration that reaches a running job (for ssh, scp, rsync, editors)",
       .example = "billow ssh-config --all >> ~/.ssh/config\nscp model.pt billow-12:\nssh "
                  "billow-train\nbillow ssh-config 12 >> ~/.ssh/config",
       .run = cmd_ssh_config,
       .usage = "JOB | --all",
       .options = {ssh_options, ssh_config_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = group,
       .prints_json = false});
  table.push_back(
      {.name = "ssh-proxy",
       .summary =
           "carry one ssh connection to a running job (used as ProxyCommand; see ssh-config)",
       .example = "$ ssh -o ProxyCommand='billow ssh-proxy 12' …",
       .run = cmd_ssh_proxy,
       .usage = "JOB",
       .options = {ssh_options, ssh_proxy_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = internal_group,
       .prints_json = false});
}

}  // namespace billow::client
