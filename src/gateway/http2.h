// HTTP/2 on both sides of the proxy. Each stream is a request like any other: a client's becomes a
// StreamFront, which the host treats as every Front; towards a replica it becomes a StreamBack.
//
// Memory: of a request body at most the stream's window is inside the gateway (64 KiB until a
// replica takes it, then 256 KiB), of an answer about 64 KiB, and of all streams of a connection
// 2 MiB and about 1 MiB (net/http2/http2_session.h).
#pragma once

#include "gateway/proxy.h"
#include "net/http2/http2_session.h"

namespace billow::gateway {

class StreamBack;

// Writes the frames of a session until the other side is slow to read.
void write_frames(net::Http2Session& session, net::Stream& stream);

// A request that is a stream of a client's HTTP/2 connection.
class StreamFront final : public Front {
 public:
  using Id = net::Http2Session::StreamId;
  StreamFront(Proxy& proxy, Http2Front& connection, Id id);
  void take_head(net::HttpParser::Head& head, bool end);
  void take_bad_head(int status, const std::string& why);
  void take_body(std::string_view data);
  void take_end();
  void cut();  // the stream is gone
  void relieved();
  bool tls() const override;
  void from_gateway() override;
  bool congested() override;

 protected:
  int client_fd() const override;
  FarEnd& far_end() const override;
  bool client_lost(SteadyTime now) override;
  void pause_client() override;
  void resume_client() override;
  void go_on() override;
  void begin_answer(net::HttpParser::Head& head) override;
  void send_answer(std::string_view data) override;
  void flush_answer() override;
  void finish_answer(const net::Headers& trailers) override;
  void send_whole(const net::Response& response) override;
  void disconnect() override;
  void end_of_answer() override { leave(); }
  void say_goodbye() override { leave(); }

 private:
  void leave();
  Http2Front* connection_;  // null: it is gone
  Id id_;
  // The answer's head, until it is known whether a body follows.
  net::Http2Fields head_to_send_;
  int status_to_send_ = 0;
  std::uint64_t sent_seen_ = 0;
  SteadyTime stalled_since_;
  bool widened_ = false;
};

// A client's HTTP/2 connection.
class Http2Front final : public net::StreamOwner,
                         public net::Http2Session::Owner,
                         public std::enable_shared_from_this<Http2Front> {
 public:
  using Id = net::Http2Session::StreamId;
  using Place = std::shared_ptr<net::Admission::Place>;
  // The connection began with `data`, the preface.
  static void take_over(Proxy& proxy,
                        std::shared_ptr<net::Stream> stream,
                        Place place,
                        const std::string& peer,
                        std::optional<unsigned> unix_uid,
                        std::string_view data);
  Http2Front(Proxy& proxy, std::shared_ptr<net::Stream> stream, Place place);
  ~Http2Front() override;
  void close();
  void close_when_idle();
  void drop();  // as Front::drop
  void check_deadlines(SteadyTime now);

  net::Http2Session& session() { return session_; }
  net::Stream& stream() { return *stream_; }
  const std::string& peer() const { return peer_; }
  std::optional<unsigned> unix_uid() const { return unix_uid_; }
  FarEnd& far_end() { return far_end_; }
  void wrote();       // the session has something to send
  void ended(Id id);  // its request is over; what was written is still sent

  void stream_data(std::string_view data) override;
  void stream_eof() override;
  void stream_failed(std::string reason) override;
  void stream_drained() override;

  void stream_head(Id id, net::HttpParser::Head& head, bool end) override;
  void stream_refused(Id id, int status, const std::string& why) override;
  void stream_body(Id id, std::string_view data) override;
  void stream_end(Id id, const net::Headers& trailers) override;
  void stream_closed(Id id, net::Http2Error error) override;
  void stream_relieved(Id id) override;

 private:
  std::shared_ptr<StreamFront> begin(Id id);
  std::shared_ptr<StreamFront> find(Id id) const;
  void flush();
  void write_out();
  void leave(SteadyTime now);
  void say_goodbye();
  void cut_all();

  Proxy& proxy_;
  std::shared_ptr<net::Stream> stream_;
  Place place_;
  net::Http2Session session_;
  std::string peer_;
  std::optional<unsigned> unix_uid_;
  FarEnd far_end_;
  std::unordered_map<Id, std::shared_ptr<StreamFront>> requests_;
  SteadyTime deadline_;  // while there is no request
  SteadyTime head_since_, progress_at_;
  std::uint64_t written_seen_ = 0;
  bool receiving_ = false, flushing_ = false, flush_posted_ = false;
  bool closing_ = false;    // after the current requests
  SteadyTime announced_;    // when the client was asked for no more
  bool went_away_ = false;  // it was told which requests were the last
  bool goodbye_ = false, closed_ = false;
};

// A connection to a replica that speaks HTTP/2.
class Http2Back final : public net::StreamOwner,
                        public net::Http2Session::Owner,
                        public std::enable_shared_from_this<Http2Back> {
 public:
  using Id = net::Http2Session::StreamId;
  Http2Back(net::Loop& loop, net::Transport transport);
  ~Http2Back() override;
  void start() { stream_->start(); }
  bool usable() const;    // for a new request, now or later
  bool has_room() const;  // for a new request now
  bool expired(SteadyTime now) const;
  std::shared_ptr<StreamBack> new_request(SteadyTime now);
  void retire();  // no new requests; it is closed after the last one

  net::Http2Session& session() { return session_; }
  net::Stream& stream() { return *stream_; }
  void began(Id id, StreamBack& back);
  void ended(Id id);
  void wrote();

  void stream_data(std::string_view data) override;
  void stream_eof() override;
  void stream_failed(std::string reason) override;
  void stream_drained() override;

  void stream_head(Id id, net::HttpParser::Head& head, bool end) override;
  void stream_refused(Id, int, const std::string&) override {}
  void stream_body(Id id, std::string_view data) override;
  void stream_end(Id id, const net::Headers& trailers) override;
  void stream_closed(Id id, net::Http2Error error) override;
  void stream_relieved(Id id) override;

 private:
  std::shared_ptr<StreamBack> find(Id id) const;
  void flush();
  void lost(const std::string& why);

  std::shared_ptr<net::Stream> stream_;
  net::Http2Session session_;
  std::unordered_map<Id, StreamBack*> requests_;
  SteadyTime idle_since_;
  bool receiving_ = false, flushing_ = false, flush_posted_ = false;
  bool retired_ = false;
};

// A request on such a connection.
class StreamBack final : public Back {
 public:
  StreamBack(std::shared_ptr<Http2Back> connection, SteadyTime now);
  ~StreamBack() override;
  void serve(Front* front, bool, bool) override { front_ = front; }
  void send_request(std::string_view body, bool end) override;
  void send_body(std::string_view data, bool end) override;
  bool congested() override;
  void close() override;
  void set_paused(bool paused) override;
  bool connected() const override;
  bool alive() const override { return false; }  // unknown: it fails with its whole connection

  // ---- for the connection
  Front* front() { return front_; }
  void head_came() { head_seen_ = true; }
  void answer_ended() { answer_ended_ = true; }

 private:
  void send(std::string_view data, bool end);
  std::shared_ptr<Http2Back> connection_;
  Http2Back::Id id_ = 0;
  bool request_ended_ = false, answer_ended_ = false;
};

}  // namespace billow::gateway
