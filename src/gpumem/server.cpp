// One thread per connection: connections are few (the processes of jobs and the agent), and each
// waits most of the time.
#include "gpumem/server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <map>
#include <sstream>

namespace billow::gpumem {

namespace {
constexpr std::size_t line_bytes_max = 8192;
constexpr std::size_t connections_max = 4096;
// Of one user's jobs: eight jobs with the most processes. The rest is for the others.
constexpr std::size_t connections_per_user_max = 1024;

Result<Fd> listen_on(const std::string& path, int type, unsigned mode) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return fail(Code::invalid, "a socket path must have 1 to 107 characters: " + path);
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  if (!fd)
    return fail_errno("create a socket", errno);
  unlink(path.c_str());
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), mode) != 0 || listen(fd.get(), 128) != 0)
    return fail_errno("listen on " + path, errno);
  return fd;
}

struct Fields {
  std::string verb;
  std::map<std::string, std::string> values;
  std::vector<std::string> devices;

  std::string text(const std::string& key, const std::string& fallback = "") const {
    const auto found = values.find(key);
    return found == values.end() ? fallback : found->second;
  }
  Result<std::uint64_t> number(const std::string& key, std::uint64_t fallback) const {
    const auto found = values.find(key);
    if (found == values.end())
      return fallback;
    char* end = nullptr;
    errno = 0;
    const unsigned long long value = std::strtoull(found->second.c_str(), &end, 10);
    if (errno || end == found->second.c_str() || *end || found->second[0] == '-')
      return fail(Code::invalid, key + "=" + found->second + " is not a number");
    return value;
  }
};

Fields split(const std::string& line) {
  Fields out;
  std::istringstream words(line);
  words >> out.verb;
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos)
      continue;
    if (word.substr(0, equals) == "device")
      out.devices.push_back(word.substr(equals + 1));
    else
      out.values[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return out;
}

// UUIDHEX|-:MEMORY:CONTEXT:SHARE_MILLI
Result<DeviceLimit> parse_device(const std::string& text) {
  DeviceLimit out;
  std::istringstream parts(text);
  std::string uuid, memory, context, share;
  std::getline(parts, uuid, ':');
  std::getline(parts, memory, ':');
  std::getline(parts, context, ':');
  std::getline(parts, share, ':');
  std::string digits;
  for (char c : uuid)
    if (std::isxdigit(static_cast<unsigned char>(c)))
      digits += c;
  if (uuid != "-" && digits.size() != 32)
    return fail(Code::invalid,
                "a device is UUID:MEMORY:CONTEXT:SHARE with 32 hexadecimal digits, not " + text);
  if (uuid != "-")
    for (std::size_t i = 0; i < 16; i++)
      out.uuid[i] = static_cast<std::uint8_t>(std::stoul(digits.substr(i * 2, 2), nullptr, 16));
  Fields numbers;
  numbers.values = {{"memory", memory}, {"context", context}, {"share", share}};
  out.memory_bytes = BILLOW_TRY(numbers.number("memory", 0));
  out.context_bytes = BILLOW_TRY(numbers.number("context", 0));
  out.share_milli = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(1000, BILLOW_TRY(numbers.number("share", 1000))));
  return out;
}

Result<JobSpec> parse_job(const Fields& f) {
  JobSpec spec;
  spec.name = f.text("name");
  spec.token = f.text("token");
  spec.suspendable = f.text("suspendable", "1") == "1";
  spec.strict = f.text("strict", "0") == "1";
  spec.reserve_bytes = BILLOW_TRY(f.number("reserve", 0));
  for (const std::string& device : f.devices)
    spec.devices.push_back(BILLOW_TRY(parse_device(device)));
  return spec;
}

std::string report_text(const std::string& prefix, const MoveReport& r) {
  std::ostringstream out;
  out << prefix << "seconds=" << r.seconds << ' ' << prefix << "bytes=" << r.counts.bytes << ' '
      << prefix << "copied=" << r.counts.copied_bytes << ' ' << prefix
      << "zero=" << r.counts.zero_bytes << ' ' << prefix << "known=" << r.counts.known_bytes << ' '
      << prefix << "copies=" << r.counts.copies << ' ' << prefix
      << "quiesce_s=" << r.quiesce_seconds << ' ' << prefix << "residue_s=" << r.residue_seconds
      << ' ' << prefix << "residue=" << r.residue_bytes << ' ' << prefix
      << "cold=" << (r.cold ? 1 : 0);
  if (!r.cold_error.empty()) {
    std::string why = r.cold_error;
    for (char& c : why)
      if (c == ' ')
        c = '_';
    out << ' ' << prefix << "cold_error=" << why;
  }
  for (std::size_t i = 0; i < r.lost.size(); i++)
    out << (i ? "," : ' ' + prefix + "lost=") << r.lost[i];
  return out.str();
}

Result<std::string> execute(Service& service, const Fields& f) {
  const std::string name = f.text("name");
  const int timeout_ms =
      static_cast<int>(std::min<std::uint64_t>(3600000, BILLOW_TRY(f.number("timeout_ms", 30000))));
  if (f.verb == "ping")
    return std::string("abi=") + std::to_string(BILLOW_ABI_VERSION);
  if (f.verb == "status")
    return "\n" + service.status_text();
  if (f.verb == "add") {
    BILLOW_TRY_VOID(service.add_job(BILLOW_TRY(parse_job(f))));
    return std::string();
  }
  if (f.verb == "remove") {
    BILLOW_TRY_VOID(service.remove_job(name));
    return std::string();
  }
  if (f.verb == "checkpoint" || f.verb == "restore") {
    std::vector<int> pids;
    std::istringstream words(f.text("pids"));
    for (std::string word; std::getline(words, word, ',');) {
      Fields one;
      one.values["pid"] = word;
      pids.push_back(static_cast<int>(BILLOW_TRY(one.number("pid", 0))));
    }
    if (f.verb == "checkpoint")
      BILLOW_TRY_VOID(service.checkpoint_pids(pids));
    else
      BILLOW_TRY_VOID(service.restore_pids(pids));
    return std::string();
  }
  if (f.verb == "context") {
    BILLOW_TRY_VOID(service.set_context_bytes(name, BILLOW_TRY(f.number("bytes", 0))));
    return std::string();
  }
  if (f.verb == "suspend")
    return report_text(
        "", BILLOW_TRY(service.suspend(name, f.text("mode", "warm") == "cold", timeout_ms)));
  if (f.verb == "resume")
    return report_text("", BILLOW_TRY(service.resume(name)));
  if (f.verb == "swap") {
    const auto both = BILLOW_TRY(service.swap(f.text("out"), f.text("in"),
                                              BILLOW_TRY(f.number("allowance", 0)), timeout_ms));
    return report_text("out_", both.first) + " " + report_text("in_", both.second);
  }
  return fail(Code::invalid, "unknown command " + f.verb);
}
}  // namespace

std::string run_command(Service& service, const std::string& line) {
  const auto answer = execute(service, split(line));
  if (answer)
    return answer->empty() ? "ok" : "ok " + *answer;
  std::string message =
      answer.error().message + (answer.error().hint.empty() ? "" : "; " + answer.error().hint);
  for (char& c : message)
    if (c == '\n')
      c = ' ';
  return std::string("error ") + code_name(answer.error().code) + " " + message;
}

Result<std::unique_ptr<Server>> Server::create(ServerOptions options) {
  // The chunks of a suspended job arrive as descriptors: thousands for a program with small
  // segments.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  std::unique_ptr<Server> server(new Server);
  server->options_ = options;
  server->service_ = BILLOW_TRY(Service::create(options.service));
  server->jobs_ =
      BILLOW_TRY(listen_on(options.job_socket, SOCK_SEQPACKET, options.job_socket_mode));
  server->admin_ = BILLOW_TRY(listen_on(options.admin_socket, SOCK_STREAM, 0600));
  server->wake_ = Fd(eventfd(0, EFD_CLOEXEC));
  return server;
}

Server::~Server() = default;

void Server::stop() {
  const std::uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) < 0)
    return;
}

void Server::run(int signal_fd) {
  accept_loop(signal_fd);
  close_connections();
  threads_.join();
}

void Server::accept_loop(int signal_fd) {
  for (;;) {
    pollfd fds[] = {{jobs_.get(), POLLIN, 0},
                    {admin_.get(), POLLIN, 0},
                    {wake_.get(), POLLIN, 0},
                    {signal_fd, POLLIN, 0}};
    if (poll(fds, 4, -1) < 0 && errno != EINTR)
      return;
    if (fds[2].revents || fds[3].revents)
      return;
    for (int i = 0; i < 2; i++)
      if (fds[i].revents & POLLIN)
        start_connection(Fd(accept4(fds[i].fd, nullptr, nullptr, SOCK_CLOEXEC)), i == 0);
  }
}

void Server::start_connection(Fd socket, bool from_job) {
  Fd duplicate(socket ? fcntl(socket.get(), F_DUPFD_CLOEXEC, 0) : -1);
  if (!duplicate)
    return;
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return;
  const std::lock_guard guard(connections_lock_);
  const auto same = std::count_if(connections_.begin(), connections_.end(),
                                  [&](const auto& c) { return c.from_job && c.user == peer.uid; });
  // The agent always gets in, also beside jobs of root.
  if (from_job && (connections_.size() >= connections_max ||
                   static_cast<std::size_t>(same) >= connections_per_user_max))
    return;
  const auto entry =
      connections_.insert(connections_.end(), Connection{std::move(duplicate), from_job, peer.uid});
  threads_.start([this, from_job, entry, connection = std::move(socket)]() mutable {
    if (from_job)
      serve_job(std::move(connection));
    else
      serve_admin(std::move(connection));
    const std::lock_guard ended(connections_lock_);
    connections_.erase(entry);
  });
}

void Server::close_connections() {
  const std::lock_guard guard(connections_lock_);
  for (const Connection& connection : connections_)
    shutdown(connection.socket.get(), SHUT_RDWR);
}

void Server::serve_job(Fd socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  const timeval hello_timeout{5, 0}, no_timeout{0, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &hello_timeout, sizeof hello_timeout);
  auto hello = receive_packet(socket.get());
  if (!hello)
    return;
  while (hello->head.type == BILLOW_FETCH) {
    if (!service_->fetch(socket.get(), *hello))
      return;
    hello = receive_packet(socket.get());
    if (!hello)
      return;
  }
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &no_timeout, sizeof no_timeout);
  auto link = service_->welcome(std::move(socket), peer.pid, *hello);
  if (!link)
    return;
  for (;;) {
    auto answer = receive_packet((*link)->socket());
    if (!answer)
      break;
    (*link)->deliver(std::move(*answer));
  }
  service_->ended(*link);
}

void Server::serve_admin(Fd socket) {
  std::string buffer;
  char chunk[1024];
  for (;;) {
    const ssize_t n = read(socket.get(), chunk, sizeof chunk);
    if (n <= 0)
      return;
    buffer.append(chunk, static_cast<std::size_t>(n));
    if (buffer.size() > line_bytes_max && buffer.find('\n') == std::string::npos)
      return;
    for (std::size_t end; (end = buffer.find('\n')) != std::string::npos; buffer.erase(0, end + 1))
      if (!answer_line(socket.get(), buffer.substr(0, end)))
        return;
  }
}

// False: the connection is broken.
bool Server::answer_line(int socket, const std::string& line) {
  const bool stopping = line == "stop" && service_->idle();
  std::string answer = line != "stop" ? run_command(*service_, line)
                       : stopping     ? "ok"
                                      : "error conflict jobs are registered";
  while (!answer.empty() && answer.back() == '\n')
    answer.pop_back();
  answer += "\n\n";
  for (std::size_t sent = 0; sent < answer.size();) {
    const ssize_t written = send(socket, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
    if (written <= 0)
      return false;
    sent += static_cast<std::size_t>(written);
  }
  if (stopping)
    stop();
  return true;
}

}  // namespace billow::gpumem
