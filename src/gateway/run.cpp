// The gateway as a process: its loop, its signals, and its connection to the head.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "gateway/gateway.h"
#include "gateway/messages.h"
#include "net/http/certificate_keeper.h"

namespace billow::gateway {
namespace {

constexpr Duration dial_again = milliseconds(200);
constexpr Duration figures_period = seconds(1);
constexpr int failures_until_said = 25;
// A head that refuses the token so often in a row has expelled this gateway.
constexpr int refusals_until_expelled = 10;
// Keys that were removed meanwhile work at a gateway without its head: for so long at most.
constexpr Duration table_life = hours(72);
constexpr Duration drain_patience = seconds(20), leave_patience = seconds(5);
// Of a gateway with a successor: for its streams, and for answers of the head.
constexpr Duration hand_over_patience = minutes(10), last_answers_patience = milliseconds(500);

// The WebSocket to the head, which is dialled again whenever it is lost. Messages sent while it is
// down are lost; their senders repeat them if they still matter.
class Line final : public HeadLink {
 public:
  static Result<std::unique_ptr<Line>> open(net::Loop& loop,
                                            Gateway& gateway,
                                            const GatewayOptions& options) {
    std::unique_ptr<Line> line(new Line(loop, gateway, options));
    line->head_ = BILLOW_TRY(net::parse_endpoint(options.head));
    line->certificate_ = BILLOW_TRY(net::CertificateKeeper::create(
        loop,
        {.place = {.file =
                       options.data_dir.empty() ? "" : options.data_dir + "/head-certificate.pem",
                   .trust = options.head_tls,
                   .own_cert = options.client_cert,
                   .own_key = options.client_key},
         .credential = std::make_shared<net::NodeCredential>(options.token_path),
         .name = "gateway",
         .head = [at = line.get()] { return at->head_; },
         .changed =
             [at = line.get()] {
               at->stale_ = true;
             }}));
    line->dial();
    line->figures_timer_ =
        loop.every(figures_period, [at = line.get()] { at->say(at->gateway_.figures()); });
    return line;
  }
  ~Line() override {
    if (socket_)
      socket_->abort();
  }
  bool quiet() const { return asked_.empty(); }  // no question is unanswered
  bool connected() const override { return socket_ && socket_->open(); }
  void say(const FromGateway& message) override {
    if (connected())
      socket_->send_text(encode(message));
  }
  void ask(FromGateway message,
           std::uint64_t number,
           std::function<void(Result<Reply>)> done) override {
    if (!connected() || !socket_->send_text(encode(message)))
      return loop_.post(
          [done = std::move(done)] { done(fail(Code::unavailable, "the head is unreachable")); });
    asked_.emplace(number, std::move(done));
  }

 private:
  Line(net::Loop& loop, Gateway& gateway, const GatewayOptions& options)
      : loop_(loop), gateway_(gateway), token_path_(options.token_path), region_(options.region) {}
  void dial() {
    certificate_->before_dialling([this](const Status& reached) {
      if (reached)
        return dial_certified();
      certificate_->connection_failed();
      failed(reached.error());
    });
  }
  // The client is made anew after the certificate has changed.
  Status open_client() {
    if (client_ && !stale_)
      return {};
    auto fresh = BILLOW_TRY(net::HttpClient::create(loop_, {.tls = certificate_->tls()}));
    // The old one may be calling us: destroyed later.
    loop_.post([old = std::shared_ptr<net::HttpClient>(std::move(client_))] {});
    client_ = std::move(fresh);
    stale_ = false;
    return {};
  }
  void dial_certified() {
    if (const Status open = open_client(); !open)
      return failed({Code::invalid, open.error().message, ""});
    const auto token = token_path_.empty() ? Result<std::string>("") : read_file(token_path_, 4096);
    if (!token)
      return failed({Code::invalid, token.error().message, ""});
    net::ClientRequest request;
    request.endpoint = head_;
    request.target =
        region_.empty() ? "/v1/gateway" : "/v1/gateway?region=" + net::percent_encode(region_);
    request.timeout = seconds(5);
    if (!token->empty())
      request.headers.set("Authorization", "Bearer " + std::string(trim(*token)));
    client_->connect_websocket(
        std::move(request), {.message_bytes_max = 64 << 20, .queue_bytes_max = 64 << 20},
        [this](Result<std::shared_ptr<net::WebSocket>> made) {
          if (!made) {
            certificate_->connection_failed();
            return failed(made.error());
          }
          complained_ = false;
          failures_ = refusals_ = 0;
          socket_ = std::move(*made);
          socket_->on_close([this](const net::WebSocket::Closed&) { lost(); });
          socket_->on_message([this](std::string_view text, bool) { heard(text); });
          say(gateway_.figures());
        });
  }
  // A head that is away usually comes back: that is said after a while. What does not fix itself is
  // said at once.
  void failed(const Error& why) {
    const bool away = why.code == Code::unavailable && why.message.find("TLS") == std::string::npos;
    if (!complained_ && (!away || ++failures_ == failures_until_said)) {
      complained_ = true;
      if (why.code == Code::unauthorized && token_path_.empty())
        log_warn(
            "the head requires a token: create one with `billow token create NAME --scope "
            "gateway`, pass it with --token-file");
      else if (why.code == Code::unauthorized)
        log_warn("the head does not accept the token in {}", token_path_);
      else
        log_warn("cannot reach the head: {}", why.message);
    }
    if (why.code == Code::unauthorized && ++refusals_ == refusals_until_expelled)
      gateway_.forget_table("the head no longer accepts this gateway");
    else if (loop_.steady() - heard_at_ > table_life)
      gateway_.forget_table(
          fmt::format("this gateway has not reached its head for {}", format_duration(table_life)));
    again_ = loop_.after(dial_again, [this] { dial(); });
  }
  void lost() {
    socket_ = nullptr;
    heard_at_ = loop_.steady();
    for (auto& [number, done] : std::exchange(asked_, {}))
      done(fail(Code::unavailable, "the connection to the head was lost"));
    again_ = loop_.after(dial_again, [this] { dial(); });
  }
  void heard(std::string_view text) {
    auto message = decode_to_gateway(text);
    if (!message)
      return log_error("invalid message from the head: {}", message.error().message);
    if (auto* table = std::get_if<Table>(&*message))
      return gateway_.take_table(std::move(*table));
    if (std::holds_alternative<Leave>(*message))
      return gateway_.leave();
    if (const auto* ask = std::get_if<Ask>(&*message))
      return say(Heard{ask->number});
    auto& reply = std::get<Reply>(*message);
    const auto found = asked_.find(reply.number);
    if (found == asked_.end())
      return;
    const auto done = std::move(found->second);
    asked_.erase(found);
    done(std::move(reply));
  }

  net::Loop& loop_;
  Gateway& gateway_;
  // Trusts only the head's certificate, and connects only to it.
  std::unique_ptr<net::HttpClient> client_;
  net::Endpoint head_;
  std::string token_path_, region_;
  std::unique_ptr<net::CertificateKeeper> certificate_;
  std::shared_ptr<net::WebSocket> socket_;
  std::unordered_map<std::uint64_t, std::function<void(Result<Reply>)>> asked_;
  net::Timer again_, figures_timer_;
  bool complained_ = false;
  int failures_ = 0;                      // since it was connected
  int refusals_ = 0;                      // of the token, likewise
  SteadyTime heard_at_ = loop_.steady();  // of a lost connection: when it ended
  bool stale_ = false;                    // the client shows a certificate of before
};

// "NAME=127.0.0.1:8000,127.0.0.1:8001" as a table of permanent endpoints. "NAME=h2://…" and
// "NAME=grpc://…": their replicas speak that.
Result<Table> fixed_table(const std::vector<std::string>& serve, std::uint32_t sample) {
  Table table;
  std::uint64_t key = 0;
  for (const std::string& text : serve) {
    const auto equals = text.find('=');
    if (equals == std::string::npos)
      return fail(Code::invalid, fmt::format("\"{}\" is not NAME=HOST:PORT", text));
    EndpointRow row;
    row.name = text.substr(0, equals);
    BILLOW_TRY_VOID(check_name("endpoint", row.name));
    row.serving = 1;
    row.deployed_at = system_clock().wall();
    row.policy.concurrency = 0;
    row.policy.sample = sample;
    std::string addresses = text.substr(equals + 1);
    for (const auto protocol : {EndpointProtocol::h2, EndpointProtocol::grpc}) {
      const std::string scheme = std::string(enum_name(protocol)) + "://";
      if (!addresses.starts_with(scheme))
        continue;
      addresses.erase(0, scheme.size());
      row.policy.protocol = protocol;
    }
    for (const auto& address : split(addresses, ',')) {
      BILLOW_TRY_VOID(net::parse_address(address));
      row.replicas.push_back({.job = ++key,
                              .revision = 1,
                              .address = address,
                              .job_state = JobState::running,
                              .task_state = TaskState::running});
    }
    row.policy.min = row.policy.max = static_cast<std::uint32_t>(row.replicas.size());
    table.endpoints.push_back(std::move(row));
  }
  return table;
}

Result<Fd> lock_directory(const std::string& directory) {
  BILLOW_TRY_VOID(make_directories(directory, 0700));
  Fd lock(::open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock)
    return fail_errno(directory + "/lock", errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(Code::conflict, fmt::format("a gateway already runs on {}", directory),
                "stop it first");
  return lock;
}

// If the port is taken and any port is allowed: the one it had before, because callers know it,
// else a free one.
Result<std::unique_ptr<Gateway>> open_gateway(net::Loop& loop,
                                              const GatewayOptions& options,
                                              std::vector<HandedListener> handed) {
  Gateway::Options made;
  made.proxy.listen = options.listen;
  if (!handed.empty() && options.listen_any_port_if_taken) {
    made.proxy.listen.clear();
    for (const HandedListener& each : handed)
      made.proxy.listen.push_back(each.asked);
  }
  made.proxy.handed = std::move(handed);
  made.proxy.tls = options.tls;
  made.proxy.threads = std::max<std::size_t>(1, options.threads);
  made.data_dir = options.data_dir;
  made.advertise = options.advertise;
  made.webhook_hosts = options.webhook_hosts;
  made.otlp = options.otlp;
  made.trace_sample = options.otlp.empty() ? 0 : options.trace_sample;
  made.sample_to = options.sample_to;
  made.bucket_access = options.bucket_access;
  made.domains = options.domains;
  made.certs_dir = options.certs_dir;
  made.insecure_http = options.insecure_http;
  made.acme = options.acme;
  made.version = options.version;
  made.proxy.trusted = BILLOW_TRY(Networks::parse(options.trusted_proxies));
  auto opened = Gateway::create(loop, made);
  if (opened || opened.error().code != Code::conflict || !options.listen_any_port_if_taken)
    return opened;
  log_warn("{}; using another port", opened.error().message);
  const std::string before =
      options.data_dir.empty()
          ? std::string()
          : std::string(trim(read_file(options.data_dir + "/address").value_or("")));
  if (!before.empty() && before.find(',') == std::string::npos && net::parse_address(before)) {
    made.proxy.listen = {before};
    if (opened = Gateway::create(loop, made); opened)
      return opened;
  }
  made.proxy.listen = {"127.0.0.1:0"};
  return Gateway::create(loop, made);
}

void announce(Gateway& gateway, const std::string& data_dir) {
  std::string where;
  for (const auto& address : gateway.proxy().bound_addresses())
    where += (where.empty() ? "" : ", ") + address;
  log_info("the gateway listens on {}", where);
  if (!data_dir.empty())
    (void)write_file_atomic(data_dir + "/address", where + "\n", 0600);
}

// A running gateway. It ends by a signal, by its head, or when its successor has begun and its last
// request has ended.
class Process {
 public:
  Process(net::Loop& loop, Gateway& gateway, Fd& lock)
      : loop_(loop), gateway_(gateway), lock_(lock) {}
  ~Process() {
    gateway_.set_on_leave({});
    gateway_.set_link(nullptr);
  }
  Status connect(const GatewayOptions& options) {
    line_ = BILLOW_TRY(Line::open(loop_, gateway_, options));
    gateway_.set_link(line_.get());
    return {};
  }
  // Without it the gateway serves all the same.
  void offer_hand_over(const std::string& directory) {
    auto offered =
        HandOver::offer(loop_, {.directory = directory,
                                .listeners = [this] { return gateway_.proxy().listeners(); },
                                .handed =
                                    [this](std::function<void()> let_go) {
                                      handed(std::move(let_go));
                                    }});
    if (offered)
      hand_over_ = std::move(*offered);
    else
      log_warn("--take-over is not possible: {}", offered.error().message);
  }
  // The first signal lets requests finish, the second does not.
  void run() {
    const auto signals = loop_.on_signal({SIGINT, SIGTERM}, [&](int) {
      if (stopping_)
        return loop_.stop();
      gateway_.stop();
      end_within(drain_patience);
    });
    gateway_.set_on_leave([&] {
      if (stopping_)
        return;
      gateway_.stop();
      end_within(leave_patience);
    });
    loop_.run();
  }

 private:
  void end_within(Duration patience) {
    stopping_ = true;
    drained_ = loop_.every(milliseconds(20), [this] {
      if (gateway_.deserted())
        loop_.stop();
    });
    give_up_ = loop_.after(patience, [this] { loop_.stop(); });
  }
  // Connections wait in the queue of the sockets meanwhile.
  void handed(std::function<void()> let_go) {
    log_info("a new gateway takes over; this one ends after its last request");
    const SteadyTime until = loop_.steady() + last_answers_patience;
    gateway_.hand_over();
    end_within(hand_over_patience);
    last_answers_ = loop_.every(milliseconds(5), [this, until, let_go = std::move(let_go)] {
      if (line_ && !line_->quiet() && loop_.steady() < until)
        return;
      last_answers_.cancel();
      gateway_.set_link(nullptr);
      line_.reset();
      lock_.reset();
      let_go();
    });
  }

  net::Loop& loop_;
  Gateway& gateway_;
  Fd& lock_;
  std::unique_ptr<Line> line_;
  std::unique_ptr<HandOver> hand_over_;
  net::Timer drained_, give_up_, last_answers_;
  bool stopping_ = false;
};

// The data directory is this process's, perhaps after another gateway has handed it over.
Result<Fd> hold_directory(const GatewayOptions& options, std::vector<HandedListener>& handed) {
  auto lock = lock_directory(options.data_dir);
  if (lock || !options.take_over || lock.error().code != Code::conflict)
    return lock;
  handed = BILLOW_TRY(take_over(options.data_dir));
  // Somebody who looks whether a gateway runs holds the lock for a moment (base/lock_file.h).
  for (int tries = 0; tries < 100; ++tries) {
    if (lock = lock_directory(options.data_dir); lock)
      break;
    ::usleep(20'000);
  }
  return lock;
}

}  // namespace

Status run_gateway(GatewayOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  std::vector<HandedListener> handed;
  Fd lock;
  if (!options.data_dir.empty())
    lock = BILLOW_TRY(hold_directory(options, handed));
  auto fixed = BILLOW_TRY(fixed_table(options.serve, options.sample));
  net::Loop loop;
  auto gateway = BILLOW_TRY(open_gateway(loop, options, std::move(handed)));
  announce(*gateway, options.data_dir);
  Process process(loop, *gateway, lock);
  if (!options.data_dir.empty())
    process.offer_hand_over(options.data_dir);
  if (!options.serve.empty()) {
    gateway->take_table(std::move(fixed));
  } else {
    if (const auto loaded = gateway->load_table(); !loaded)
      log_warn("{}", loaded.error().message);
    BILLOW_TRY_VOID(process.connect(options));
  }
  process.run();
  return {};
}

}  // namespace billow::gateway
