// One HTTP/2 connection without its socket: bytes in, events out; answers in, bytes out. The
// gateway uses it towards clients (server) and towards replicas (client). nghttp2 reads and writes
// the frames; this class adds what a public server needs and keeps nghttp2's types to itself.
//
// Guarantees
// - A head is a Head that passed the rules of Http2HeadReader. A request that breaks them is
//   reported with a status to answer (400, 431); one whose frames are malformed is reset.
// - Body bytes never exceed the announced Content-Length, and the end of a body that is shorter is
//   never reported: the stream is reset.
// - Everything is bounded: streams, header lists, bytes received and not yet taken (by flow-control
//   windows), and frames that only cost work (resets, pings, settings, …), which have a budget. A
//   peer that overdraws it is disconnected with ENHANCE_YOUR_CALM.
// - It reads no clock: the caller says what time it is.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "net/http2/http2_head.h"

struct nghttp2_session;

namespace billow::net {

// Every HTTP/2 client begins with these bytes.
inline constexpr std::string_view http2_preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

enum class Http2Error : std::uint32_t {
  none = 0,
  protocol = 1,
  internal = 2,
  refused_stream = 7,  // nothing of the request was processed
  cancel = 8,
  enhance_your_calm = 11,
};

struct Http2Limits {
  std::uint32_t streams_max = 100;  // open at once, of a client
  // Received and not yet taken: of one stream until it is served, then, and of all streams.
  std::int32_t window_bytes = 64 << 10;
  std::int32_t wide_window_bytes = 256 << 10;
  std::int32_t connection_window_bytes = 2 << 20;
  // Of an answer that the peer does not read: of one stream, and of all.
  std::size_t queued_bytes_max = 64 << 10;
  std::size_t queued_in_all_bytes_max = 1 << 20;
  std::size_t dropped_bytes_max = 64 << 10;  // of a message after the end of its answer
  // Of one header block, decompressed. A list above http_header_bytes_max is refused and read to
  // its end; one above this disconnects the peer.
  std::size_t header_bomb_bytes = 256 << 10;
  // The budget for frames that only cost work: a burst, and how much comes back in a second.
  double work_max = 1000;
  double work_per_s = 200;
  double reset_cost = 4;      // each stands for a request that was started for nothing
  double window_cost = 0.05;  // a reader sends one for every few KiB
  double data_credit = 1.2;   // for a frame of ours: a reader may answer it with a ping
};

class Http2Session {
 public:
  using StreamId = std::int32_t;
  // The peer carries requests of many clients: that they cancel is no work of its own.
  void trust_peer() { work_ = limits_.work_max = limits_.work_per_s = 1e9; }
  enum class Role { server, client };

  // Called from within receive() and take_output(). Callbacks may use the session, but must not
  // call these two or destroy it.
  class Owner {
   public:
    virtual ~Owner() = default;
    // A request (server), or the final head of an answer (client). `end`: no body follows.
    virtual void stream_head(StreamId id, HttpParser::Head& head, bool end) = 0;
    // A request that must be answered with this status.
    virtual void stream_refused(StreamId id, int status, const std::string& why) = 0;
    virtual void stream_body(StreamId id, std::string_view data) = 0;
    virtual void stream_end(StreamId id, const Headers& trailers) = 0;
    // Nothing more happens on it. An error: the peer or a broken rule has ended it.
    virtual void stream_closed(StreamId id, Http2Error error) = 0;
    // The queue of a stream that was congested() is short again.
    virtual void stream_relieved(StreamId id) = 0;
  };

  Http2Session(Role role, Owner& owner, Http2Limits limits = {});
  ~Http2Session();
  Http2Session(const Http2Session&) = delete;

  // After an error the connection must be closed, once take_output() has been sent.
  Status receive(std::string_view data, SteadyTime now);
  // Appends frames, until `out` has about `bytes_max` bytes.
  void take_output(std::string& out, std::size_t bytes_max);
  bool wants_output() const;
  bool over() const;                         // neither side has anything to say any more
  bool in_head() const { return in_head_; }  // a header block has begun and not ended
  std::size_t streams() const { return streams_.size(); }

  // ---- server
  void answer(StreamId id, int status, const Http2Fields& fields, bool end);
  void go_on(StreamId id);  // 100 Continue
  void widen(StreamId id);  // its body is wanted: it may send more ahead
  // ---- client
  bool can_open() const;
  Result<StreamId> open(const Http2Fields& fields, bool end);
  // ---- both
  void send(StreamId id, std::string_view data);
  void finish(StreamId id, const Http2Fields* trailers = nullptr);
  // The rest of the peer's message is not wanted. A peer that continues for long after the end of
  // the answer is told to stop.
  void drop_the_rest(StreamId id);
  void reset(StreamId id, Http2Error error);
  // A paused stream's peer may send no more than its window.
  void pause(StreamId id);
  void resume(StreamId id);
  bool congested(StreamId id);
  std::size_t queued(StreamId id) const;
  std::uint64_t sent(StreamId id) const;  // body bytes, so far
  // Asks the peer for no new streams, and takes those that are on their way already. When it has
  // heard this, go_away() loses no request.
  void announce_end();
  bool end_heard() const { return end_heard_; }
  void go_away(Http2Error error);  // no new streams; those that are open go on

 private:
  struct Stream;
  friend struct Http2Callbacks;
  Stream* find(StreamId id) const;
  Stream& add(StreamId id);
  void remove(StreamId id);
  void took(Stream& stream, std::size_t bytes);
  void drop(Stream& stream, std::size_t bytes);
  bool spend(double cost);
  int head_complete(Stream& stream, bool end);

  Role role_;
  Owner& owner_;
  Http2Limits limits_;
  nghttp2_session* session_ = nullptr;
  std::unordered_map<StreamId, std::unique_ptr<Stream>> streams_;
  std::vector<StreamId> congested_;
  std::size_t queued_in_all_ = 0;
  std::string* out_ = nullptr;  // during take_output
  std::size_t out_max_ = 0;
  double work_;
  SteadyTime work_at_;
  bool in_head_ = false;
  bool overdrawn_ = false;
  bool announced_ = false, end_heard_ = false;
};

}  // namespace billow::net
