// The client's side of HTTP/2.
#include "base/log.h"
#include "gateway/grpc.h"
#include "gateway/http2.h"

namespace billow::gateway {
namespace {
constexpr Duration farewell_timeout = seconds(2);
constexpr std::size_t output_bytes_max = 64 << 10;  // taken from a session at once

net::Http2Fields& spare_fields() {
  static thread_local net::Http2Fields fields;
  fields.clear();
  return fields;
}
}  // namespace

void write_frames(net::Http2Session& session, net::Stream& stream) {
  static thread_local std::string spare;
  std::string out = std::exchange(spare, {});
  while (stream.open() && stream.queued() < limits::gateway_flow_bytes_max &&
         session.wants_output()) {
    out.clear();
    session.take_output(out, output_bytes_max);
    if (out.empty())
      break;
    stream.send_views({out});
  }
  spare = std::move(out);
}

// The first bytes decide: the preface of HTTP/2, or a request. True: they are not for this object,
// or not enough to tell. Over TLS, HTTP/2 is agreed on in the handshake and not chosen later.
bool Front::may_become_http2(std::string_view data) {
  const bool agreed = stream_->http2();
  std::string first = pending_;
  first.append(data.substr(0, net::http2_preface.size()));
  const auto same = std::min(first.size(), net::http2_preface.size());
  const bool fits = (agreed || !stream_->tls()) &&
                    std::string_view(first).substr(0, same) == net::http2_preface.substr(0, same);
  if (fits && same < net::http2_preface.size()) {
    pending_ = std::move(first);
    return true;
  }
  if (!fits && agreed) {
    close();
    return true;
  }
  fresh_ = false;
  if (!fits)
    return false;
  const std::string all = std::exchange(pending_, {}).append(data);
  place_->detach();
  state_ = State::closed;
  Http2Front::take_over(proxy_, std::exchange(stream_, nullptr), std::exchange(place_, nullptr),
                        peer_, unix_uid_, all);
  proxy_.forget(*this);
  return true;
}

StreamFront::StreamFront(Proxy& proxy, Http2Front& connection, Id id)
    : Front(proxy, connection.peer(), connection.unix_uid()), connection_(&connection), id_(id) {}

void StreamFront::take_head(net::HttpParser::Head& head, bool end) {
  head_ = std::move(head);
  body_complete_ = end;
  begin_request();
}

void StreamFront::take_bad_head(int status, const std::string& why) {
  bad_request(status, why);
}

void StreamFront::take_body(std::string_view data) {
  if (active() && !body_complete_)
    forward_body(data);
}

void StreamFront::take_end() {
  if (body_complete_)
    return;
  body_complete_ = true;
  if (active())
    forward_body({});
}

void StreamFront::cut() {
  connection_ = nullptr;
  close();
}

void StreamFront::relieved() {
  if (back_)
    back_->set_paused(false);
}

bool StreamFront::tls() const {
  return connection_ && connection_->stream().tls();
}

int StreamFront::client_fd() const {
  return connection_ ? connection_->stream().fd() : -1;
}

FarEnd& StreamFront::far_end() const {
  return connection_ ? connection_->far_end() : Front::far_end();
}

// Its clients share the connection, and must not close it for each other.
void StreamFront::from_gateway() {
  if (connection_)
    connection_->session().trust_peer();
}

bool StreamFront::congested() {
  return connection_ && connection_->session().congested(id_);
}

// A client that keeps its window closed holds the answer here.
bool StreamFront::client_lost(SteadyTime now) {
  if (!connection_)
    return true;
  const auto& session = connection_->session();
  const auto sent = session.sent(id_);
  if (session.queued(id_) == 0 || sent != sent_seen_ || stalled_since_.ns == 0) {
    sent_seen_ = sent;
    stalled_since_ = now;
    return false;
  }
  return now - stalled_since_ > proxy_.options().write_stall_timeout;
}

void StreamFront::pause_client() {
  if (connection_)
    connection_->session().pause(id_);
}

void StreamFront::resume_client() {
  if (!connection_)
    return;
  if (state_ == State::serving && !std::exchange(widened_, true))
    connection_->session().widen(id_);
  connection_->session().resume(id_);
  connection_->wrote();
}

void StreamFront::go_on() {
  if (!connection_)
    return;
  connection_->session().go_on(id_);
  connection_->wrote();
}

void StreamFront::begin_answer(net::HttpParser::Head& head) {
  head_to_send_.clear();
  write_answer_head(head_to_send_, head, *this);
  status_to_send_ = head.status;
}

void StreamFront::send_answer(std::string_view data) {
  if (!connection_)
    return;
  if (const int status = std::exchange(status_to_send_, 0))
    connection_->session().answer(id_, status, head_to_send_, false);
  connection_->session().send(id_, data);
}

void StreamFront::flush_answer() {
  if (!connection_)
    return;
  if (const int status = std::exchange(status_to_send_, 0))
    connection_->session().answer(id_, status, head_to_send_, false);
  connection_->wrote();
}

// The end of an answer is only queued here: leave() writes it. The session closes a stream whose
// end it has written, and that must not look like a client that disconnects before its answer is
// complete.
void StreamFront::finish_answer(const net::Headers& trailers) {
  if (!connection_)
    return;
  net::Http2Fields& fields = spare_fields();
  for (const auto& [name, value] : trailers)
    if (!net::equal_nocase(name, "Set-Cookie"))
      fields.add(name, value);
  auto& session = connection_->session();
  if (const int status = std::exchange(status_to_send_, 0))
    session.answer(id_, status, head_to_send_, fields.size() == 0);
  session.finish(id_, &fields);
}

void StreamFront::send_whole(const net::Response& response) {
  if (!connection_)
    return;
  auto& session = connection_->session();
  net::Http2Fields& fields = spare_fields();
  status_to_send_ = 0;
  if (is_grpc(head_) && response.status >= 400) {
    write_grpc_error(fields, response, *this);
    session.answer(id_, 200, fields, true);
    return;
  }
  write_whole_head(fields, response, *this, proxy_.date());
  const bool bodiless = head_only_ || response.body.empty();
  session.answer(id_, response.status, fields, bodiless);
  if (!bodiless) {
    session.send(id_, response.body);
    session.finish(id_);
  }
}

// An answer that breaks off must not look complete.
void StreamFront::disconnect() {
  if (!connection_)
    return;
  Http2Front& connection = *std::exchange(connection_, nullptr);
  connection.session().reset(id_, net::Http2Error::internal);
  connection.ended(id_);
}

void StreamFront::leave() {
  if (state_ == State::closed)
    return;
  state_ = State::closed;
  if (connection_) {
    Http2Front& connection = *std::exchange(connection_, nullptr);
    if (!body_complete_)
      connection.session().drop_the_rest(id_);
    connection.ended(id_);
  }
  proxy_.forget(*this);
}

// ---- the connection

void Http2Front::take_over(Proxy& proxy,
                           std::shared_ptr<net::Stream> stream,
                           Place place,
                           const std::string& peer,
                           std::optional<unsigned> unix_uid,
                           std::string_view data) {
  auto connection = std::make_shared<Http2Front>(proxy, std::move(stream), std::move(place));
  connection->peer_ = peer;
  connection->unix_uid_ = unix_uid;
  proxy.remember(connection);
  connection->place_->wait_with([&proxy, weak = std::weak_ptr(connection)] {
    proxy.run_here([weak] {
      if (const auto dropped = weak.lock())
        dropped->drop();
    });
  });
  connection->stream_data(data);
}

Http2Front::Http2Front(Proxy& proxy, std::shared_ptr<net::Stream> stream, Place place)
    : proxy_(proxy),
      stream_(std::move(stream)),
      place_(std::move(place)),
      session_(net::Http2Session::Role::server, *this) {
  stream_->set_owner(this);
  deadline_ = proxy.loop().steady() + proxy.options().header_timeout;
  closing_ = proxy.stopping();
}

Http2Front::~Http2Front() {
  stream_->close();
}

void Http2Front::cut_all() {
  for (const auto& [id, request] : std::exchange(requests_, {}))
    request->cut();
}

void Http2Front::close() {
  if (closed_)
    return;
  const auto keep = shared_from_this();
  closed_ = true;
  place_->detach();
  cut_all();
  stream_->close();
  proxy_.forget(*this);
}

void Http2Front::drop() {
  if (requests_.empty())
    close();
  else
    place_->stay();
}

void Http2Front::close_when_idle() {
  leave(proxy_.loop().steady());
}

// A request may be on its way when the connection is to end, and clients do not repeat one whose
// connection was closed. So the client is first asked for no more, and then given the time to hear
// it.
void Http2Front::leave(SteadyTime now) {
  if (closed_ || goodbye_)
    return;
  const auto keep = shared_from_this();
  closing_ = true;
  if (announced_.ns == 0) {
    announced_ = now;
    session_.announce_end();
  } else if (!went_away_ && (session_.end_heard() || now - announced_ > farewell_timeout)) {
    went_away_ = true;
    session_.go_away(net::Http2Error::none);
  }
  if (went_away_ && requests_.empty() && session_.streams() == 0)
    return say_goodbye();
  flush();
}

// No request is left, or the client broke the rules: what is queued is sent, then it is closed.
void Http2Front::say_goodbye() {
  if (closed_ || goodbye_)
    return;
  const auto keep = shared_from_this();
  goodbye_ = true;
  write_out();
  if (closed_)
    return;
  cut_all();
  deadline_ = proxy_.loop().steady() + farewell_timeout;
  stream_->end_after_flush(true);
  if (!stream_->open())
    close();
}

void Http2Front::check_deadlines(SteadyTime now) {
  const auto keep = shared_from_this();
  const auto& options = proxy_.options();
  if (stream_->paused_peer_has_gone(false) ||
      (stream_->queued() > 0 && now - stream_->last_write_progress() > options.write_stall_timeout))
    return close();
  if (goodbye_)
    return now < deadline_ ? void() : close();
  if (!session_.in_head())
    head_since_ = {};
  else if (head_since_.ns == 0)
    head_since_ = now;
  else if (now - head_since_ > options.header_timeout)
    return close();
  const bool idle = requests_.empty() && session_.streams() == 0;
  if (closing_ || (idle && now >= deadline_))
    leave(now);
  if (closed_ || goodbye_ || idle || !requests_.empty())
    return;
  // Answers that are complete but not read.
  if (stream_->bytes_written() != written_seen_ || progress_at_.ns == 0) {
    written_seen_ = stream_->bytes_written();
    progress_at_ = now;
  } else if (now - progress_at_ > options.write_stall_timeout) {
    close();
  }
}

std::shared_ptr<StreamFront> Http2Front::find(Id id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second;
}

std::shared_ptr<StreamFront> Http2Front::begin(Id id) {
  auto request = std::make_shared<StreamFront>(proxy_, *this, id);
  if (requests_.empty())
    place_->engage();
  requests_[id] = request;
  proxy_.remember(request);
  return request;
}

void Http2Front::ended(Id id) {
  requests_.erase(id);
  progress_at_ = {};
  if (requests_.empty() && !closed_ && !goodbye_) {
    place_->end();
    deadline_ = proxy_.loop().steady() + proxy_.options().idle_timeout;
  }
  wrote();
}

// Several requests are answered in one turn of the loop: their frames are written together.
void Http2Front::wrote() {
  if (receiving_ || flushing_ || closed_ || flush_posted_)
    return;
  if (requests_.size() <= 1)
    return flush();
  flush_posted_ = true;
  proxy_.loop().post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self)
      return;
    self->flush_posted_ = false;
    self->flush();
  });
}

void Http2Front::flush() {
  if (receiving_ || flushing_ || closed_ || goodbye_)
    return;
  const auto keep = shared_from_this();
  write_out();
  if (!closed_ && session_.over())
    say_goodbye();
}

void Http2Front::write_out() {
  flushing_ = true;
  write_frames(session_, *stream_);
  flushing_ = false;
}

void Http2Front::stream_data(std::string_view data) {
  const auto keep = shared_from_this();
  if (closed_ || goodbye_)
    return;
  receiving_ = true;
  const auto received = session_.receive(data, proxy_.loop().steady());
  receiving_ = false;
  if (closed_)
    return;
  if (!received) {
    log_debug("client {}: {}", peer_, received.error().message);
    return say_goodbye();
  }
  flush();
  if (closing_ && session_.end_heard())
    leave(proxy_.loop().steady());
  // A client that asks and does not read is not asked for more.
  if (!closed_ && stream_->queued() >= limits::gateway_flow_bytes_max)
    stream_->pause_reading();
}

void Http2Front::stream_eof() {
  close();
}

void Http2Front::stream_failed(std::string) {
  close();
}

void Http2Front::stream_drained() {
  const auto keep = shared_from_this();
  if (closed_ || goodbye_)
    return;
  stream_->resume_reading();
  flush();
}

void Http2Front::stream_head(Id id, net::HttpParser::Head& head, bool end) {
  if (!closed_)
    begin(id)->take_head(head, end);
}

void Http2Front::stream_refused(Id id, int status, const std::string& why) {
  if (!closed_)
    begin(id)->take_bad_head(status, why);
}

void Http2Front::stream_body(Id id, std::string_view data) {
  if (const auto request = find(id))
    request->take_body(data);
}

void Http2Front::stream_end(Id id, const net::Headers&) {
  if (const auto request = find(id))
    request->take_end();
}

void Http2Front::stream_closed(Id id, net::Http2Error) {
  const auto request = find(id);
  if (!request)
    return;
  ended(id);
  request->cut();
}

void Http2Front::stream_relieved(Id id) {
  if (const auto request = find(id))
    request->relieved();
}

}  // namespace billow::gateway
