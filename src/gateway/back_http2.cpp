// The replica's side of HTTP/2.
#include <fmt/format.h>

#include "gateway/http2.h"

namespace billow::gateway {
namespace {
constexpr std::size_t requests_max = 250;  // on one connection, whatever a replica allows

// A replica is not a stranger: it may reset and ping as it likes.
net::Http2Limits replica_limits() {
  net::Http2Limits out;
  out.connection_window_bytes = 16 << 20;
  out.queued_bytes_max = limits::gateway_flow_bytes_max;
  out.queued_in_all_bytes_max = 16 << 20;
  out.work_max = 100'000;
  out.work_per_s = 10'000;
  return out;
}
}  // namespace

Http2Back::Http2Back(net::Loop& loop, net::Transport transport)
    : stream_(std::make_shared<net::Stream>(loop, std::move(transport), this)),
      session_(net::Http2Session::Role::client, *this, replica_limits()),
      idle_since_(loop.steady()) {}

Http2Back::~Http2Back() {
  stream_->close();
}

bool Http2Back::usable() const {
  return !retired_ && stream_->open() && !session_.over() &&
         (!requests_.empty() || !stream_->peer_has_closed());
}

bool Http2Back::has_room() const {
  return requests_.size() < requests_max && session_.can_open();
}

bool Http2Back::expired(SteadyTime now) const {
  return !stream_->open() || (requests_.empty() && now - idle_since_ > limits::client_idle_timeout);
}

std::shared_ptr<StreamBack> Http2Back::new_request(SteadyTime now) {
  return std::make_shared<StreamBack>(shared_from_this(), now);
}

void Http2Back::retire() {
  retired_ = true;
  if (requests_.empty())
    stream_->close();
}

void Http2Back::began(Id id, StreamBack& back) {
  requests_[id] = &back;
}

void Http2Back::ended(Id id) {
  requests_.erase(id);
  if (!requests_.empty())
    return;
  idle_since_ = stream_->loop().steady();
  if (!retired_ || receiving_ || flushing_)
    return;
  flush();
  stream_->close();
}

std::shared_ptr<StreamBack> Http2Back::find(Id id) const {
  const auto found = requests_.find(id);
  return found == requests_.end()
             ? nullptr
             : std::static_pointer_cast<StreamBack>(found->second->shared_from_this());
}

void Http2Back::wrote() {
  if (receiving_ || flushing_ || flush_posted_)
    return;
  if (requests_.size() <= 1)
    return flush();
  flush_posted_ = true;
  stream_->loop().post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self)
      return;
    self->flush_posted_ = false;
    self->flush();
  });
}

void Http2Back::flush() {
  if (receiving_ || flushing_ || !stream_->open())
    return;
  const auto keep = shared_from_this();
  flushing_ = true;
  write_frames(session_, *stream_);
  flushing_ = false;
}

void Http2Back::stream_data(std::string_view data) {
  const auto keep = shared_from_this();
  receiving_ = true;
  const auto received = session_.receive(data, stream_->loop().steady());
  receiving_ = false;
  if (!received)
    return lost(fmt::format("its answer is not valid: {}", received.error().message));
  flush();
  if (session_.over() || (retired_ && requests_.empty()))
    lost("it closed the connection before it answered");
}

void Http2Back::stream_eof() {
  lost("it closed the connection before it answered");
}

void Http2Back::stream_failed(std::string reason) {
  lost(reason);
}

void Http2Back::stream_drained() {
  flush();
}

void Http2Back::lost(const std::string& why) {
  const auto keep = shared_from_this();
  retired_ = true;
  const bool wrote_any = stream_->bytes_written() > 0;
  stream_->close();
  std::vector<std::shared_ptr<StreamBack>> all;
  for (const auto& [id, back] : std::exchange(requests_, {}))
    all.push_back(std::static_pointer_cast<StreamBack>(back->shared_from_this()));
  for (const auto& back : all)
    if (Front* front = back->front())
      front->shared_from_this()->back_failed(why, wrote_any);
}

void Http2Back::stream_head(Id id, net::HttpParser::Head& head, bool end) {
  const auto back = find(id);
  if (!back || !back->front())
    return;
  const auto front = back->front()->shared_from_this();
  back->head_came();
  front->answer_head(head, false);
  // An h1 client's bytes wait in a buffer that all clients share.
  if (!end)
    front->back_drained();
}

void Http2Back::stream_body(Id id, std::string_view data) {
  const auto back = find(id);
  if (!back || !back->front())
    return;
  const auto front = back->front()->shared_from_this();
  front->answer_body(data);
  front->back_drained();
}

void Http2Back::stream_end(Id id, const net::Headers& trailers) {
  const auto back = find(id);
  if (!back || !back->front())
    return;
  back->answer_ended();
  back->front()->shared_from_this()->answer_done(false, trailers);
}

void Http2Back::stream_closed(Id id, net::Http2Error error) {
  const auto back = find(id);
  if (!back)
    return;
  requests_.erase(id);
  if (!back->front())
    return;
  const auto front = back->front()->shared_from_this();
  if (error == net::Http2Error::refused_stream)
    return front->back_failed("it refused the request", false);
  front->back_failed(
      fmt::format("it reset the request (HTTP/2 error {})", static_cast<std::uint32_t>(error)),
      true, false);
}

void Http2Back::stream_relieved(Id id) {
  const auto back = find(id);
  if (back && back->front())
    back->front()->shared_from_this()->body_drained();
}

// ---- one request

StreamBack::StreamBack(std::shared_ptr<Http2Back> connection, SteadyTime now)
    : Back(now), connection_(std::move(connection)) {}

StreamBack::~StreamBack() {
  close();
}

void StreamBack::send_request(std::string_view body, bool end) {
  static thread_local net::Http2Fields fields;
  fields.clear();
  write_request_head(fields, *front_);
  const bool bodiless = end && body.empty();
  const auto opened = connection_->session().open(fields, bodiless);
  if (!opened) {
    // Posted: the front is not done with this call.
    connection_->stream().loop().post(
        [self = std::static_pointer_cast<StreamBack>(shared_from_this()),
         why = opened.error().message] {
          if (self->front_)
            self->front_->shared_from_this()->back_failed(why, false);
        });
    return;
  }
  id_ = *opened;
  request_ended_ = bodiless;
  connection_->began(id_, *this);
  send(body, end);
}

void StreamBack::send_body(std::string_view data, bool end) {
  send(data, end);
}

void StreamBack::send(std::string_view data, bool end) {
  if (id_ == 0)
    return;
  auto& session = connection_->session();
  session.send(id_, data);
  if (end && !std::exchange(request_ended_, true))
    session.finish(id_);
  connection_->wrote();
}

bool StreamBack::congested() {
  return id_ != 0 && connection_->session().congested(id_);
}

void StreamBack::close() {
  front_ = nullptr;
  const auto id = std::exchange(id_, 0);
  if (id == 0)
    return;
  if (!request_ended_ || !answer_ended_)
    connection_->session().reset(id, net::Http2Error::cancel);
  connection_->ended(id);
  connection_->wrote();
}

void StreamBack::set_paused(bool paused) {
  if (paused == paused_ || id_ == 0)
    return;
  paused_ = paused;
  if (paused)
    return connection_->session().pause(id_);
  connection_->session().resume(id_);
  connection_->wrote();
}

bool StreamBack::connected() const {
  return connection_->stream().bytes_written() > 0 || connection_->stream().queued() == 0;
}

}  // namespace billow::gateway
