// One server connection: bytes in, exchanges out. Internal to net.
//
// It is always in exactly one state. Bytes are parsed only in `head` and `body`; while a request is
// being answered they wait in `pending_` (bounded: then reading pauses), which makes pipelining
// safe. In `draining` the answer has been sent and writing has ended; bytes that the client still
// sends are discarded for a moment, because closing a socket with unread bytes would reset it and
// could lose the answer.
#pragma once

#include "net/http/admission.h"
#include "net/http/http_parser.h"
#include "net/http/http_server.h"
#include "net/stream.h"

namespace billow::net {

class Connection;
class ServerExchange;

// What a connection needs from its server.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const HttpServer::Options& options() const = 0;
  virtual const Handler& handler() const = 0;
  virtual bool stopping() const = 0;
  virtual std::string_view date() = 0;  // for the Date header
  virtual std::string next_request_id() = 0;
  virtual void refused(Refused reason, const std::string& peer) = 0;
  virtual void forget(Connection& connection) = 0;
  virtual void upgraded(const std::shared_ptr<WebSocket>& socket) = 0;
};

class Connection : public StreamOwner, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop& loop,
             ConnectionHost& host,
             Transport transport,
             std::shared_ptr<Admission::Place> place);
  ~Connection() override;
  void start();
  void check_deadlines(SteadyTime now);
  void close();  // at once
  void server_gone();
  void close_when_idle();

  void stream_data(std::string_view data) override;
  void stream_eof() override;
  void stream_failed(std::string reason) override;
  void stream_drained() override;

 private:
  friend class ServerExchange;
  enum class State { head, body, handling, streaming, draining, closed };

  void process();
  bool head_arrived();
  bool admit();
  bool choose_body_plan();
  bool take_body(std::string_view data);
  void dispatch();
  void refuse(int status, std::string_view detail, std::string_view hint = {});
  void refuse(const Error& error);
  void respond(Response response);
  void answered();  // the current exchange is over
  void say_goodbye();
  std::string response_head(int status,
                            const Headers& headers,
                            std::optional<std::uint64_t> body_bytes,
                            bool chunked);
  void send_whole(Response response, bool keep_alive);
  void note_answer(int status) const;

  void start_stream(int status, Headers headers);
  bool write_stream(std::string_view data);
  void finish_stream();
  Result<std::shared_ptr<WebSocket>> upgrade(WebSocket::Options options);
  void abandoned();  // the handler dropped its exchange

  Loop& loop_;
  ConnectionHost* host_;
  std::shared_ptr<Stream> stream_;  // moved out on a WebSocket upgrade; then null, and closed
  State state_ = State::head;
  std::optional<HttpParser> parser_;
  std::string pending_;  // received, from consumed_ on not yet parsed
  std::size_t consumed_ = 0;
  bool processing_ = false;
  std::shared_ptr<Admission::Place> place_;
  std::string peer_;
  std::optional<unsigned> peer_uid_;
  PeerCertificatePtr certificate_;  // of the client, from its first request on

  // Of the current request
  Request request_;
  BodyPlan plan_;
  std::uint64_t body_bytes_ = 0;
  SteadyTime body_began_at_;
  ServerExchange* exchange_ = nullptr;
  std::string request_id_;
  SteadyTime dispatched_at_;
  int minor_version_ = 1;
  bool head_only_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  std::optional<std::uint64_t> stream_bytes_left_;  // of a declared Content-Length
  bool peer_eof_ = false;
  std::optional<SteadyTime> deadline_;
};

}  // namespace billow::net
