// The proxy: bytes from clients to replicas and back, HTTP/1.1 or HTTP/2 on either side
// (http2.h has the classes for HTTP/2). It knows nothing about endpoints: its host decides which
// replica gets a request, and what the client gets if there is none.
//
// Guarantees
// - One strict parser (net/http/http_parser.h) reads both sides, and every head is written again
//   from the parsed values. Anything ambiguous never reaches a replica.
// - Bodies stream: at most limits::gateway_flow_bytes_max are buffered, then the sender is paused.
//   Of a request that waits for a replica, limits::gateway_held_body_bytes_max are read and kept
//   until the answer begins, so that it can be sent to another replica.
// - If the client disconnects, its request is cancelled: the connection to the replica is closed.
// - Every wait has a deadline: for a head, a body, an answer, a reader, the next request.
// - Connections to replicas are reused, but only if nothing unexpected has arrived on them.
#pragma once

#include <atomic>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/limits.h"
#include "gateway/hand_over.h"
#include "gateway/pure/body_memory.h"
#include "gateway/pure/credentials.h"
#include "gateway/pure/forwarded.h"
#include "gateway/pure/key_meter.h"
#include "gateway/pure/router.h"
#include "gateway/pure/sample.h"
#include "gateway/pure/token_usage.h"
#include "gateway/pure/trace_context.h"
#include "net/address.h"
#include "net/http/admission.h"
#include "net/http/http_parser.h"
#include "net/http2/http2_head.h"
#include "net/loop.h"
#include "net/stream.h"
#include "net/tls.h"

namespace billow::gateway {

class Front;
class Back;
class Proxy;
class Http2Front;
class Http2Back;

// A replica as seen by the proxies of all loops. Each keeps connections of its own to it.
struct Upstream {
  ReplicaKey key = 0;
  std::string name;  // "127.0.0.1:20017", for the log
  net::RawAddress address;
  std::string peer_key;  // of another gateway: authenticates us to it; empty: a replica
  std::shared_ptr<net::TlsContext> tls;  // verifies that gateway; null: without TLS
  const std::uint64_t serial;            // of this object: no other has it, ever
  Upstream();
  static Result<std::shared_ptr<Upstream>> create(ReplicaKey key, const std::string& address);
  // No connection to it is kept any more. From any thread.
  void close();
  bool closed() const { return closed_; }
  // `fn` is called once, when it is closed; at once if it is already.
  void on_close(std::function<void()> fn);
  // Connections that belong to any loop, so that one loop can tell whether the replica lives.
  void opened(int fd);
  void left(int fd);
  bool has_open_socket() const;

 private:
  std::atomic<bool> closed_ = false;
  mutable std::mutex mutex_;  // for the rest
  std::vector<std::function<void()>> on_close_;
  std::vector<int> sockets_;
};

// The host's decision about a request, kept until the request ends.
struct Ticket {
  RequestId id = 0;
  std::shared_ptr<void> endpoint;  // owned by the host
  std::size_t prefix_bytes = 0;    // of the target, not shown to the replica: "/f/NAME"
  Duration timeout = seconds(60);  // from its arrival to the answer's head
  std::string strip_header;        // carried the endpoint's key, which the replica must not see
  bool strip_credentials = false;  // whatever key the request has is not the replica's to see
  std::string allow_origin;        // CORS
  std::string set_cookie;          // added to the answer; empty: none
  bool from_peer = false;          // another gateway passed it on
  bool http2 = false;              // what the replica speaks
  std::size_t body_held = 0;       // of the gateway's memory for bodies
  BodyParty body_party;            // who holds it
  bool shares_memory = false;      // a body that is read as a whole takes from it
  Wish wish;                       // which replica should get it
  bool mirrored = false;           // a copy is sent to the canary when it has ended
  bool copy = false;               // it is such a copy
  TraceContext trace;
  std::shared_ptr<Sample> sample;     // null: it is not kept
  std::optional<OfferedKey> offered;  // what it brings; none: not asked for yet
  std::string key;                    // the name of the caller's key; empty: without one
  std::string key_endpoint;           // the endpoint whose key it is; empty: the one that serves
  // Endpoints that may serve it if this one cannot (a model's others and fallbacks).
  std::vector<std::string> others;
  bool by_host = false;            // a host name has chosen the endpoint
  std::string host_endpoint;       // of the host name, for the gateway's own pages there
  bool own_name = false;           // the host name is one that the gateway's owner has given it
  std::string named;               // for another gateway: the endpoint, if the path does not say
  std::size_t body_bytes_max = 0;  // 0: no limit
  bool metered = false;            // it counts for that key until it ends
  bool counts_tokens = false;      // that key has a limit or a price in tokens
  TokenUsage usage;                // what it has used, known when it has ended
  AnswerForm form;
  bool own_call = false;  // an asynchronous call, which this gateway carries out
  KeyMeter::Reserved reserved;
  NanoUsd charge;                // what it has cost the key
  bool failed_inside = false;    // gRPC: the status of an answer that HTTP calls good
  bool failure_counted = false;  // for its endpoint, which it has left
  std::uint32_t tries = 0;
  std::uint32_t lost = 0;                     // replicas that failed after they had got it
  std::shared_ptr<Upstream> upstream;         // while one serves it
  SteadyTime arrived, given, first_byte;      // given: to a replica
  SteadyTime body_at;                         // the last piece of its body came
  std::uint64_t bytes_in = 0, bytes_out = 0;  // of the bodies
  int status = 0;
  std::string usage_tail;  // the end of a JSON or event-stream answer, where models report tokens
  bool wants_usage = false;
};

enum class End { answered, refused, client_gone, replica_failed, timed_out };

// Callbacks of the proxy, on the thread of its loop: a host with several proxies is called by
// several threads.
class ProxyHost {
 public:
  virtual ~ProxyHost() = default;
  // A head has arrived. Call give(), refuse(), or keep the front and do so later.
  virtual void arrived(const std::shared_ptr<Front>& front) = 0;
  // The replica failed before the answer began. True: the host will give() another; false: the
  // client gets an error.
  virtual bool failed(const std::shared_ptr<Front>& front,
                      const Failure& failure,
                      const std::string& why) = 0;
  // The replica refused the request by its answer's status, and other endpoints may serve it
  // (Ticket::others). Call give() or refuse().
  virtual void turned_down(const std::shared_ptr<Front>& /*front*/, int /*status*/) {}
  // A body that is read as a whole has grown to so many bytes. False: there is no memory for it,
  // and the host has refused the request.
  virtual bool grown(const std::shared_ptr<Front>& /*front*/, std::size_t /*bytes*/) {
    return true;
  }
  // The first bytes of the answer's body, for requests with a known prompt.
  virtual void answer_body_begins(Front& /*front*/, std::string_view /*data*/) {}
  // The answer has begun: the body that was kept is not needed any more.
  virtual void body_freed(Front& /*front*/) {}
  // The request has ended in some way: its slot is free. Called once for every arrival.
  virtual void over(Front& front, End end) = 0;
  virtual std::string next_request_id() = 0;
};

// What the kernel knows of the other end of a connection. It is asked once: a socket belongs to
// its creator for as long as it is open.
class FarEnd {
 public:
  // The user, if it is a process of this machine. `peer`: whom the gateway takes for the client.
  std::optional<unsigned> user(int fd, const std::string& peer);
  bool is_here(int fd);  // the connection does not leave this machine

 private:
  std::optional<std::optional<unsigned>> user_;
  std::optional<bool> is_here_;
};

// A client's request, and its HTTP/1.1 connection. A request over HTTP/2 (StreamFront) overrides
// how the client is read and written; the rest is the same.
class Front : public net::StreamOwner, public std::enable_shared_from_this<Front> {
 public:
  // `peer`: the client as a trusted proxy has named it; empty: the other end of the connection.
  Front(Proxy& proxy,
        net::Transport transport,
        std::shared_ptr<net::Admission::Place> place,
        std::string peer);
  ~Front() override;
  void start() { stream_->start(); }
  void close();
  void check_deadlines(SteadyTime now);
  void close_when_idle();
  // Makes room for another connection, unless a request has arrived meanwhile.
  void drop();
  bool holds_connection(const Upstream& upstream) const;  // that is open
  void close_after(SteadyTime idle_until);  // its next answer, or that time without a request
  void give_up(const Upstream& upstream);
  // A WebSocket, or an answer that has begun.
  bool streams() const {
    return state_ == State::tunnel || (state_ == State::serving && answer_began_);
  }

  // ---- for the host, on the loop of its proxy
  Proxy& proxy() const { return proxy_; }
  const net::HttpParser::Head& head() const { return head_; }
  std::string_view path() const;  // of the target, without its query
  // Where the request comes from, "ADDRESS:PORT". If only a trusted proxy knows, the port is 0.
  const std::string& peer() const { return client_.empty() ? peer_ : client_; }
  const std::string& request_id() const { return request_id_; }
  // The user on this machine who calls. None: the client is elsewhere, or a proxy passes its call
  // on, so that nobody can tell.
  std::optional<unsigned> local_user() const;
  virtual bool tls() const { return stream_ && stream_->tls(); }
  virtual void from_gateway() {}                  // another gateway sends it, for its clients
  bool https() const { return tls() || https_; }  // as the client sees it
  bool on_this_machine() const;                   // the connection does not leave it
  bool active() const { return state_ == State::waiting || state_ == State::serving; }
  Ticket ticket;
  void give(const std::shared_ptr<Upstream>& upstream);
  // Before an answer has begun; the rest of the body is not read.
  void refuse(net::Response response);
  // Reads the request's body first. It must arrive at a least rate.
  void read_body(std::size_t bytes_max, std::function<void(std::string)> done);
  // As the head announces it; none: it comes in chunks.
  std::optional<std::size_t> body_size() const {
    return head_.chunked ? std::nullopt
                         : std::optional<std::size_t>(head_.content_length.value_or(0));
  }
  // Returns a body that was read, so that a replica gets the whole request.
  void keep_body(std::string body) { kept_body_ = std::move(body); }
  const std::string& kept_body() const { return kept_body_; }
  // Keeps a copy of the body for as long as the request lasts, unless it is larger.
  void copy_body(std::size_t bytes_max);
  // The copy; none: it is too large, or was not asked for, or the body has not arrived completely.
  std::optional<std::string> take_copied_body();
  void respond(net::Response response);
  // What passes from now on is kept, and the body so far.
  void begin_sample(std::shared_ptr<Sample> sample);

  // ---- for the back
  void answer_head(net::HttpParser::Head& head, bool until_close);
  void answer_body(std::string_view data);
  void answer_done(bool keep_back, const net::Headers& trailers = {});
  void tunnel_open(net::HttpParser::Head& head);
  void tunnel_data(std::string_view data);
  // `connection_lost`: the replica may be gone. Otherwise it has only ended this request.
  void back_failed(const std::string& why, bool sent_anything, bool connection_lost = true);
  void back_drained();  // a batch of the answer has been processed
  void body_drained();  // the replica has taken everything queued for it
  virtual bool congested() { return stream_->queued() > limits::gateway_flow_bytes_max; }
  bool head_only() const { return head_only_; }
  bool wants_upgrade() const { return upgrade_; }

  void stream_data(std::string_view data) override;
  void stream_eof() override;
  void stream_failed(std::string reason) override;
  void stream_drained() override;

 protected:
  Front(Proxy& proxy, std::string peer, std::optional<unsigned> unix_uid);
  void begin_request();  // head_ and body_complete_ are set
  void begin_copy(const Front& of, std::string body);
  void find_client();
  void forward_body(std::string_view data);
  void bad_request(int status, std::string_view detail);
  // How the client is read and written.
  virtual int client_fd() const { return stream_->fd(); }
  virtual FarEnd& far_end() const { return far_end_; }
  virtual bool client_lost(SteadyTime now);
  virtual void pause_client() { stream_->pause_reading(); }
  virtual void resume_client() { stream_->resume_reading(); }
  virtual void go_on();  // 100 Continue
  virtual void begin_answer(net::HttpParser::Head& head);
  virtual void send_answer(std::string_view data);
  virtual void flush_answer();
  virtual void finish_answer(const net::Headers& trailers);
  virtual void send_whole(const net::Response& response);
  virtual void disconnect() { stream_->close(); }
  virtual void end_of_answer();
  virtual void say_goodbye();

  enum class State {
    idle,     // between two requests, or within a head
    waiting,  // a head has arrived, no replica is assigned
    serving,  // a replica is assigned
    tunnel,   // a WebSocket: bytes both ways
    goodbye,  // the last answer is being sent
    closed,
  };
  Proxy& proxy_;
  State state_ = State::idle;
  net::HttpParser::Head head_;
  std::shared_ptr<Back> back_;
  bool body_complete_ = false;
  bool head_only_ = false;
  bool expects_continue_ = false;

 private:
  bool may_become_http2(std::string_view data);
  void process();
  std::size_t parse(std::string_view data);
  void take_head();
  void done(End end);
  void note_grpc_status(const net::Headers& fields);
  void next_request();
  void drop_back(bool keep);
  SteadyTime tunnel_deadline() const;
  SteadyTime answer_deadline() const;

  std::shared_ptr<net::Admission::Place> place_;
  std::shared_ptr<net::Stream> stream_;
  std::optional<net::HttpParser> parser_;
  std::string pending_;  // received but not parsed
  bool processing_ = false;
  bool fresh_ = true;  // nothing has been parsed: the client may still choose HTTP/2
  std::string peer_;
  std::string client_;  // of this request, by the word of a trusted proxy; empty: peer_
  bool https_ = false;  // the same
  std::optional<unsigned> unix_uid_;
  mutable FarEnd far_end_;
  std::string request_id_;

  std::string kept_body_;  // the body so far, while it may have to be sent again
  bool body_kept_ = true;
  bool upgrade_ = false;
  bool keep_alive_ = true;
  bool answer_began_ = false;
  bool chunked_ = false;  // how the answer is framed for the client
  bool peer_eof_ = false;
  bool over_told_ = true;
  bool closing_ = false;  // after this answer
  std::function<void(std::string)> on_body_;
  std::size_t on_body_max_ = 0;
  SteadyTime on_body_until_;
  std::string whole_body_;
  std::optional<std::string> copied_body_;
  std::size_t copied_body_max_ = 0;
  SteadyTime deadline_;
  friend class Proxy;
};

// One connection to a replica; a request over HTTP/2 (StreamBack) overrides how it is sent.
class Back : public net::StreamOwner, public std::enable_shared_from_this<Back> {
 public:
  // `counted`: other loops ask the upstream for connections.
  Back(Proxy& proxy, net::Transport transport, std::shared_ptr<Upstream> counted);
  ~Back() override;
  virtual void serve(Front* front, bool head_only, bool upgrade);
  // The head of the front's request, and its body so far. `end`: the body is complete.
  virtual void send_request(std::string_view body, bool end);
  virtual void send_body(std::string_view data, bool end);
  net::Stream& stream() { return *stream_; }
  bool open() const { return stream_->open(); }
  bool stale() const { return stream_->peer_has_closed(); }
  virtual bool alive() const { return open() && connected() && !stale(); }
  bool head_seen() const { return head_seen_; }
  virtual bool congested() { return stream_->queued() > limits::gateway_flow_bytes_max; }
  void detach() { front_ = nullptr; }
  virtual void close();
  virtual void set_paused(bool paused);
  SteadyTime idle_since;
  SteadyTime connecting_since;
  virtual bool connected() const { return stream_->bytes_written() > 0 || stream_->queued() == 0; }

  void stream_data(std::string_view data) override;
  void stream_eof() override;
  void stream_failed(std::string reason) override;
  void stream_drained() override;

 protected:
  explicit Back(SteadyTime now) : connecting_since(now) {}
  Front* front_ = nullptr;
  bool head_seen_ = false, paused_ = false;

 private:
  void lost(const std::string& why);
  void leave_upstream();
  void send_pieces(std::string_view head, std::string_view data, bool end);
  std::shared_ptr<net::Stream> stream_;
  std::shared_ptr<Upstream> counted_;
  int counted_fd_ = -1;
  std::optional<net::HttpParser> parser_;
  std::string pending_;
  std::uint64_t written_before_ = 0;
  bool head_only_ = false, upgrade_ = false, tunnel_ = false;
};

// The connections of one loop. With several loops, the first one listens and deals connections to
// all of them in turn, so that each has its share whatever addresses clients have; a successor that
// gets the listening sockets may have another number of loops. What a connection does afterwards,
// and its connections to replicas, stay with its loop.
class Proxy {
 public:
  struct Options {
    std::vector<std::string> listen;
    std::size_t threads = 1;             // loops; the host makes the others
    std::vector<HandedListener> handed;  // used instead of new ones
    // A client that begins with a TLS handshake is served with this certificate. Others are served
    // on the same port; whether they get more than a redirect is the host's decision.
    net::TlsServerOptions tls;
    Networks trusted;  // proxies trusted to name their clients
    std::size_t connections_max = limits::http_connections_max;
    Duration idle_timeout = limits::http_idle_timeout;
    Duration header_timeout = limits::http_header_timeout;
    Duration body_idle_timeout = limits::http_body_idle_timeout;
    // A body that is read as a whole takes shared memory, so it must arrive within this time plus
    // what its bytes take at the least rate.
    Duration body_grace = seconds(10);
    std::size_t body_bytes_per_s_min = 128 << 10;
    Duration write_stall_timeout = limits::http_write_stall_timeout;
    Duration stream_idle_timeout = minutes(30);  // for an answer that has begun
    Duration connect_timeout = limits::gateway_connect_timeout;
  };
  static Result<std::unique_ptr<Proxy>> create(net::Loop& loop, Options options, ProxyHost& host);
  // One for another loop, which gets its part of the connections of `first`.
  static std::unique_ptr<Proxy> beside(net::Loop& loop, Proxy& first);
  ~Proxy();
  std::vector<std::string> bound_addresses() const;
  // That have sent something. Each request over HTTP/2 counts besides its connection.
  std::size_t connections() const { return fronts_.size() + http2_.size(); }
  std::size_t open_connections() const { return held_; }  // from any thread
  // The thread that calls this runs the loop from now on.
  void begin_thread() { thread_ = std::this_thread::get_id(); }
  bool on_own_thread() const { return alone_ || thread_ == std::this_thread::get_id(); }
  // Runs on its loop: now, if this is its thread. From any thread.
  void run_here(std::function<void()> fn);
  void stop_listening();  // current requests are still answered
  std::vector<HandedListener> listeners() const;
  // A successor accepts from now on. Each connection gets one more answer, which tells the client
  // to connect again, or is closed after `idle_patience` without a request.
  void hand_over(Duration idle_patience);
  bool deserted() const { return coming_ == 0 && held_ == 0; }  // from any thread

  net::Loop& loop() { return loop_; }
  const Options& options() const { return options_; }
  ProxyHost& host() { return host_; }
  bool stopping() const { return stopping_; }
  void forget(Front& front);
  void forget(Http2Front& connection);
  void remember(const std::shared_ptr<Front>& front);
  void remember(const std::shared_ptr<Http2Front>& connection);
  std::string_view date();
  std::shared_ptr<Back> connect(const std::shared_ptr<Upstream>& upstream,
                                bool http2,
                                std::string& why);
  void keep(const std::shared_ptr<Upstream>& upstream, std::shared_ptr<Back> back);
  // Whether some connection to it is open, other than that of this request: its process lives.
  bool has_connection(const Upstream& upstream, const Front& but) const;
  // It has ended: requests without any byte of an answer from it fail or are retried.
  void give_up(const Upstream& upstream);
  // Cuts answers and WebSockets that have begun.
  void end_streams(const std::function<bool(const Ticket&)>& which);

 private:
  struct Listening;
  // Connections to a replica.
  struct Pool {
    std::weak_ptr<Upstream> of;
    std::vector<std::shared_ptr<Back>> idle;
    std::vector<std::shared_ptr<Http2Back>> http2;  // each carries many requests
    void close();
  };
  Pool& pool_of(const std::shared_ptr<Upstream>& upstream);
  Result<net::Transport> dial(const Upstream& upstream, bool http2);
  std::shared_ptr<Back> connect_http2(const std::shared_ptr<Upstream>& upstream, std::string& why);
  void sweep_pools(SteadyTime now);
  Proxy(net::Loop& loop, Options options, ProxyHost& host);
  Status listen();
  void accept_some(Listening& listening);
  using Place = std::shared_ptr<net::Admission::Place>;
  struct Accepted {
    Fd fd;
    Place place;
    std::string peer = {};  // as a trusted proxy has named it
  };
  void deal(Accepted accepted, bool sorted);
  void take(Accepted accepted, bool sorted);
  void begin_sweeps();
  void count();  // after a change of what it holds
  void sort_out(Accepted accepted);
  bool sort(Accepted& accepted);
  bool take_proxy_header(Accepted& accepted);
  void serve(Accepted accepted, const std::shared_ptr<net::TlsContext>& tls);
  void sweep();

  net::Loop& loop_;
  Options options_;
  ProxyHost& host_;
  std::shared_ptr<net::Admission> admission_;
  std::shared_ptr<net::TlsContext> tls_;
  struct Undecided {
    Accepted accepted;
    SteadyTime since;
    net::Watch watch;
  };
  // Connections without any data yet: whether they use TLS is unknown.
  std::map<int, Undecided> undecided_;
  std::vector<std::unique_ptr<Listening>> listening_;
  std::unordered_map<Front*, std::shared_ptr<Front>> fronts_;
  std::unordered_map<Http2Front*, std::shared_ptr<Http2Front>> http2_;
  std::unordered_map<std::uint64_t, Pool> pools_;  // by the upstream's serial number
  const bool alone_;                               // there is one loop
  std::atomic<std::thread::id> thread_ = std::this_thread::get_id();
  std::vector<Proxy*> dealt_to_;  // of the first: all of them
  std::size_t next_dealt_ = 0;
  std::atomic<std::size_t> coming_ = 0;  // connections dealt and not taken yet
  std::atomic<std::size_t> held_ = 0;    // and others, which end before the process does
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::time_t date_second_ = 0;
  std::string date_text_;
  bool stopping_ = false;
  net::Timer sweep_timer_, accept_again_;
};

// The dashboard's cookie. Browsers do not distinguish ports, so a signed-in user sends it to
// endpoints on the same host too: no replica may see it or set it.
inline constexpr std::string_view session_cookie = "billow_session";
// The gateway's own, which names the replica that serves a client (sticky.cpp).
inline constexpr std::string_view replica_cookie = "billow_replica";
// For a Cookie field, without both; empty: nothing is left.
std::string without_own_cookies(std::string_view cookies);
bool sets_own_cookie(std::string_view set_cookie);

// Writes the rewritten heads into `out`.
void write_request_head(std::string& out, const Front& front);
void write_request_head(net::Http2Fields& out, const Front& front);
void write_answer_head(net::Http2Fields& out,
                       const net::HttpParser::Head& head,
                       const Front& front);
void write_whole_head(net::Http2Fields& out,
                      const net::Response& response,
                      const Front& front,
                      std::string_view date);
void write_answer_head(std::string& out,
                       const net::HttpParser::Head& head,
                       const Front& front,
                       bool chunked,
                       bool keep_alive);
void write_whole_head(std::string& out,
                      const net::Response& response,
                      const Front& front,
                      std::string_view date,
                      bool keep_alive);
bool repeatable_method(std::string_view method);
// Fields about the client that replicas believe (X-Forwarded-For), and fields that only gateways
// set (X-Billow-Call-…, X-Billow-Mirror): those of clients are discarded.
bool tells_of_client(std::string_view name);
bool is_own_field(std::string_view name);
// The client, as replicas see it in the forwarding headers.
std::string_view client_address(const Front& front);
std::string_view client_proto(const Front& front);
// How many options the Connection fields have; a request may have so many.
std::size_t connection_options(const net::Headers& headers);
inline constexpr std::size_t connection_options_max = 32;
// An error as OpenAI's clients read it.
net::Response api_error(int status, std::string_view code, const std::string& message);
net::Response body_too_large(const Front& front);
// Adds the header fields that may be kept.
void sample_fields(Sample::Side& side, const net::Headers& headers);
// The line before a chunk of this size.
std::string_view chunk_start(std::size_t bytes, char (&text)[24]);

}  // namespace billow::gateway
