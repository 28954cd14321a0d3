#include "net/http2/http2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace billow::net {

struct Http2Session::Stream {
  Stream(StreamId stream_id, HttpParser::Kind kind) : id(stream_id), reader(kind) {}
  StreamId id;
  Http2HeadReader reader;
  bool head_done = false;
  bool refused = false;  // what follows its head is dropped
  Headers trailers;      // received
  std::size_t trailer_bytes = 0;
  // Received, and not yet given back to the peer's window.
  std::size_t untaken = 0;
  bool paused = false;
  // To be sent.
  std::string out;
  std::size_t out_at = 0;
  std::uint64_t sent = 0;
  bool finished = false;
  bool waits = false;  // nghttp2 is told when there is more
  bool has_trailers = false;
  Http2Fields out_trailers;
  bool unwanted = false, ended = false;
  std::size_t dropped = 0;  // of an unwanted message
  bool congested = false;
  std::size_t queued() const { return out.size() - out_at; }
};

namespace {

std::string_view view(const std::uint8_t* data, std::size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

// A value that does not come again only displaces others from the table of the compression, and
// nghttp2 compares every new one with all of its name that are in there.
bool differs_each_time(std::string_view name) {
  constexpr std::string_view names[] = {"x-request-id",  "traceparent",    "tracestate",
                                        "server-timing", "x-process-time", "x-response-time"};
  return std::ranges::find(names, name) != std::end(names);
}

nghttp2_nv field_of(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  };
  const std::uint8_t flags =
      differs_each_time(name) ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE;
  return {bytes(name), bytes(value), name.size(), value.size(), flags};
}

std::vector<nghttp2_nv> fields_of(const Http2Fields& fields) {
  std::vector<nghttp2_nv> out;
  out.reserve(fields.size() + 1);
  fields.each(
      [&](std::string_view name, std::string_view value) { out.push_back(field_of(name, value)); });
  return out;
}

constexpr std::size_t frame_head_bytes = 9;

}  // namespace

// nghttp2 is C: no exception may pass through it.
struct Http2Callbacks {
  using Stream = Http2Session::Stream;

  static Http2Session& self(void* user) { return *static_cast<Http2Session*>(user); }
  template <class F>
  static int guarded(F&& f) {
    try {
      return f();
    } catch (...) {
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }

  // nghttp2 reads frames of these kinds and says no more about them.
  static int begin_frame(nghttp2_session*, const nghttp2_frame_hd* head, void* user) {
    const bool ignored = head->type == NGHTTP2_PRIORITY || head->type > NGHTTP2_CONTINUATION;
    return !ignored || self(user).spend(1) ? 0 : int{NGHTTP2_ERR_CALLBACK_FAILURE};
  }

  static int begin_headers(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    return guarded([&] {
      Http2Session& s = self(user);
      s.in_head_ = true;
      if (s.role_ == Http2Session::Role::server && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        s.add(frame->hd.stream_id);
      return 0;
    });
  }

  static int header(nghttp2_session*,
                    const nghttp2_frame* frame,
                    const std::uint8_t* name,
                    std::size_t name_bytes,
                    const std::uint8_t* value,
                    std::size_t value_bytes,
                    std::uint8_t,
                    void* user) {
    return guarded([&] {
      Http2Session& s = self(user);
      Stream* stream = s.find(frame->hd.stream_id);
      if (!stream)
        return 0;
      const auto key = view(name, name_bytes), text = view(value, value_bytes);
      if (stream->head_done) {
        stream->trailer_bytes += name_bytes + value_bytes;
        if (stream->trailer_bytes > limits::http_header_bytes_max || !check_trailer(key, text))
          return int{NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE};
        stream->trailers.add(std::string(key), std::string(text));
        return 0;
      }
      stream->reader.add(key, text);
      if (stream->reader.bytes() <= s.limits_.header_bomb_bytes)
        return 0;
      s.overdrawn_ = true;
      return int{NGHTTP2_ERR_CALLBACK_FAILURE};
    });
  }

  // nghttp2 would leave such a field out and go on.
  static int invalid_header(nghttp2_session*,
                            const nghttp2_frame*,
                            const std::uint8_t*,
                            std::size_t,
                            const std::uint8_t*,
                            std::size_t,
                            std::uint8_t,
                            void*) {
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }

  static int frame_received(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    return guarded([&] {
      Http2Session& s = self(user);
      const bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
      double cost = 0;
      switch (frame->hd.type) {
        case NGHTTP2_HEADERS: {
          s.in_head_ = false;
          Stream* stream = s.find(frame->hd.stream_id);
          if (!stream)
            return 0;
          if (!stream->head_done)
            return s.head_complete(*stream, end);
          if (end && !stream->refused)
            s.owner_.stream_end(stream->id, stream->trailers);
          return 0;
        }
        case NGHTTP2_DATA:
          if (Stream* stream = s.find(frame->hd.stream_id); stream && end && !stream->refused)
            s.owner_.stream_end(stream->id, stream->trailers);
          cost = frame->hd.length == 0 && !end ? 1 : 0;
          break;
        case NGHTTP2_RST_STREAM:
          cost = s.limits_.reset_cost;
          break;
        case NGHTTP2_WINDOW_UPDATE:
          cost = s.limits_.window_cost;
          break;
        case NGHTTP2_PRIORITY:
          break;  // begin_frame has counted it
        case NGHTTP2_PING:
          s.end_heard_ |= s.announced_ && (frame->hd.flags & NGHTTP2_FLAG_ACK);
          cost = 1;
          break;
        default:
          cost = 1;
      }
      return s.spend(cost) ? 0 : int{NGHTTP2_ERR_CALLBACK_FAILURE};
    });
  }

  static int invalid_frame(nghttp2_session*, const nghttp2_frame*, int, void* user) {
    Http2Session& s = self(user);
    s.in_head_ = false;
    return s.spend(s.limits_.reset_cost) ? 0 : int{NGHTTP2_ERR_CALLBACK_FAILURE};
  }

  static int data(nghttp2_session*,
                  std::uint8_t,
                  std::int32_t id,
                  const std::uint8_t* bytes,
                  std::size_t length,
                  void* user) {
    return guarded([&] {
      Http2Session& s = self(user);
      if (s.role_ == Http2Session::Role::client)
        ::nghttp2_session_consume_connection(s.session_, length);
      Stream* stream = s.find(id);
      if (!stream) {
        if (s.role_ == Http2Session::Role::server)
          ::nghttp2_session_consume_connection(s.session_, length);
        return 0;
      }
      stream->untaken += length;
      if (stream->unwanted)
        s.drop(*stream, length);
      else if (!stream->refused)
        s.owner_.stream_body(id, view(bytes, length));
      if (stream = s.find(id); stream && !stream->paused)
        s.took(*stream, stream->untaken);
      return 0;
    });
  }

  static int stream_close(nghttp2_session*, std::int32_t id, std::uint32_t error, void* user) {
    return guarded([&] {
      Http2Session& s = self(user);
      if (!s.find(id))
        return 0;
      s.remove(id);
      s.owner_.stream_closed(id, static_cast<Http2Error>(error));
      return 0;
    });
  }

  static int frame_sent(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    Http2Session& s = self(user);
    if (frame->hd.type == NGHTTP2_RST_STREAM)
      s.in_head_ = false;  // perhaps of a head that breaks the rules
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
      return 0;
    Stream* stream = s.find(frame->hd.stream_id);
    if (!stream)
      return 0;
    stream->ended = true;
    if (stream->unwanted)
      s.drop(*stream, 0);
    return 0;
  }

  static ssize_t read_body(nghttp2_session*,
                           std::int32_t id,
                           std::uint8_t*,
                           std::size_t length,
                           std::uint32_t* flags,
                           nghttp2_data_source*,
                           void* user) {
    Http2Session& s = self(user);
    Stream* stream = s.find(id);
    if (!stream)
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const std::size_t bytes = std::min(stream->queued(), length);
    if (bytes == 0 && !stream->finished) {
      stream->waits = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (bytes == stream->queued() && stream->finished) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      if (stream->has_trailers) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        const auto fields = fields_of(stream->out_trailers);
        ::nghttp2_submit_trailer(s.session_, id, fields.data(), fields.size());
      }
    }
    return static_cast<ssize_t>(bytes);
  }

  static ssize_t write(
      nghttp2_session*, const std::uint8_t* data, std::size_t length, int, void* user) {
    Http2Session& s = self(user);
    if (s.out_->size() >= s.out_max_)
      return NGHTTP2_ERR_WOULDBLOCK;
    s.out_->append(view(data, length));
    return static_cast<ssize_t>(length);
  }

  static int write_body(nghttp2_session*,
                        nghttp2_frame* frame,
                        const std::uint8_t* frame_head,
                        std::size_t length,
                        nghttp2_data_source*,
                        void* user) {
    Http2Session& s = self(user);
    if (s.out_->size() >= s.out_max_)
      return NGHTTP2_ERR_WOULDBLOCK;
    Stream* stream = s.find(frame->hd.stream_id);
    if (!stream || stream->queued() < length)
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    s.out_->append(view(frame_head, frame_head_bytes));
    s.out_->append(stream->out, stream->out_at, length);
    stream->out_at += length;
    stream->sent += length;
    s.work_ = std::min(s.limits_.work_max, s.work_ + s.limits_.data_credit);
    s.queued_in_all_ -= length;
    if (stream->queued() == 0) {
      stream->out = {};
      stream->out_at = 0;
    }
    return 0;
  }

  static nghttp2_session_callbacks* all() {
    static nghttp2_session_callbacks* const callbacks = [] {
      nghttp2_session_callbacks* c = nullptr;
      ::nghttp2_session_callbacks_new(&c);
      ::nghttp2_session_callbacks_set_on_begin_frame_callback(c, begin_frame);
      ::nghttp2_session_callbacks_set_on_begin_headers_callback(c, begin_headers);
      ::nghttp2_session_callbacks_set_on_header_callback(c, header);
      ::nghttp2_session_callbacks_set_on_invalid_header_callback(c, invalid_header);
      ::nghttp2_session_callbacks_set_on_frame_recv_callback(c, frame_received);
      ::nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(c, invalid_frame);
      ::nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, data);
      ::nghttp2_session_callbacks_set_on_stream_close_callback(c, stream_close);
      ::nghttp2_session_callbacks_set_on_frame_send_callback(c, frame_sent);
      ::nghttp2_session_callbacks_set_send_callback(c, write);
      ::nghttp2_session_callbacks_set_send_data_callback(c, write_body);
      return c;
    }();
    return callbacks;
  }
  static nghttp2_data_provider body() {
    nghttp2_data_provider out{};
    out.read_callback = read_body;
    return out;
  }
};

Http2Session::Http2Session(Role role, Owner& owner, Http2Limits limits)
    : role_(role), owner_(owner), limits_(limits), work_(limits.work_max) {
  nghttp2_option* option = nullptr;
  ::nghttp2_option_new(&option);
  ::nghttp2_option_set_no_auto_window_update(option, 1);
  ::nghttp2_option_set_no_closed_streams(option, 1);
  ::nghttp2_option_set_max_outbound_ack(option, 200);
  const bool server = role == Role::server;
  const int made =
      server ? ::nghttp2_session_server_new2(&session_, Http2Callbacks::all(), this, option)
             : ::nghttp2_session_client_new2(&session_, Http2Callbacks::all(), this, option);
  ::nghttp2_option_del(option);
  BILLOW_CHECK(made == 0, "nghttp2 could not make a session");
  std::vector<nghttp2_settings_entry> settings = {
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, limits::http_header_bytes_max},
  };
  if (server) {
    settings.push_back({NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits_.streams_max});
    settings.push_back(
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, static_cast<std::uint32_t>(limits_.window_bytes)});
    settings.push_back({NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1});
  } else {
    settings.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
    settings.push_back({NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                        static_cast<std::uint32_t>(limits_.wide_window_bytes)});
  }
  ::nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  ::nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0,
                                          limits_.connection_window_bytes);
}

Http2Session::~Http2Session() {
  ::nghttp2_session_del(session_);
}

Http2Session::Stream* Http2Session::find(StreamId id) const {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second.get();
}

Http2Session::Stream& Http2Session::add(StreamId id) {
  auto& stream = streams_[id];
  stream = std::make_unique<Stream>(
      id, role_ == Role::server ? HttpParser::Kind::request : HttpParser::Kind::response);
  return *stream;
}

void Http2Session::remove(StreamId id) {
  Stream* stream = find(id);
  queued_in_all_ -= stream->queued();
  if (role_ == Role::server && stream->untaken > 0)
    ::nghttp2_session_consume_connection(session_, stream->untaken);
  streams_.erase(id);
}

void Http2Session::took(Stream& stream, std::size_t bytes) {
  stream.untaken -= bytes;
  if (role_ == Role::server)
    ::nghttp2_session_consume(session_, stream.id, bytes);
  else
    ::nghttp2_session_consume_stream(session_, stream.id, bytes);
}

bool Http2Session::spend(double cost) {
  work_ -= cost;
  if (work_ >= 0)
    return true;
  overdrawn_ = true;
  return false;
}

int Http2Session::head_complete(Stream& stream, bool end) {
  const StreamId id = stream.id;
  if (const auto done = stream.reader.finish(end); !done) {
    if (role_ == Role::server) {
      stream.head_done = stream.refused = true;
      owner_.stream_refused(id, stream.reader.error_status(), done.error().message);
    } else {
      reset(id, Http2Error::protocol);
    }
    return 0;
  }
  if (role_ == Role::client && stream.reader.head().status < 200) {
    stream.reader = Http2HeadReader(HttpParser::Kind::response);  // interim; the final one follows
    return 0;
  }
  stream.head_done = true;
  owner_.stream_head(id, stream.reader.head(), end);
  if (Stream* still = find(id); still && end)
    owner_.stream_end(id, still->trailers);
  return 0;
}

Status Http2Session::receive(std::string_view data, SteadyTime now) {
  if (work_at_.ns != 0)
    work_ = std::min(limits_.work_max,
                     work_ + static_cast<double>((now - work_at_).ns) / 1e9 * limits_.work_per_s);
  work_at_ = now;
  const auto used = ::nghttp2_session_mem_recv(
      session_, reinterpret_cast<const std::uint8_t*>(data.data()), data.size());
  if (overdrawn_) {
    ::nghttp2_session_terminate_session(session_, NGHTTP2_ENHANCE_YOUR_CALM);
    return fail(Code::exhausted, "the peer sends too many frames without need");
  }
  if (used < 0) {
    if (used != NGHTTP2_ERR_BAD_CLIENT_MAGIC && used != NGHTTP2_ERR_NOMEM)
      ::nghttp2_session_terminate_session(session_, used == NGHTTP2_ERR_FLOODED
                                                        ? NGHTTP2_ENHANCE_YOUR_CALM
                                                        : NGHTTP2_INTERNAL_ERROR);
    return fail(Code::invalid,
                fmt::format("HTTP/2: {}", ::nghttp2_strerror(static_cast<int>(used))));
  }
  return {};
}

void Http2Session::take_output(std::string& out, std::size_t bytes_max) {
  out_ = &out;
  out_max_ = bytes_max;
  ::nghttp2_session_send(session_);
  out_ = nullptr;
  if (congested_.empty() || queued_in_all_ > limits_.queued_in_all_bytes_max)
    return;
  std::vector<StreamId> relieved;
  std::erase_if(congested_, [&](StreamId id) {
    Stream* stream = find(id);
    if (stream && stream->queued() > limits_.queued_bytes_max / 2)
      return false;
    if (stream) {
      stream->congested = false;
      relieved.push_back(id);
    }
    return true;
  });
  for (const StreamId id : relieved)
    owner_.stream_relieved(id);
}

bool Http2Session::wants_output() const {
  return ::nghttp2_session_want_write(session_) != 0;
}

bool Http2Session::over() const {
  return ::nghttp2_session_want_write(session_) == 0 && ::nghttp2_session_want_read(session_) == 0;
}

void Http2Session::answer(StreamId id, int status, const Http2Fields& fields, bool end) {
  const std::string text = std::to_string(status);
  Stream* stream = find(id);
  if (!stream)
    return;
  auto list = fields_of(fields);
  list.insert(list.begin(), field_of(":status", text));
  const auto body = Http2Callbacks::body();
  stream->finished = end;
  ::nghttp2_submit_response(session_, id, list.data(), list.size(), end ? nullptr : &body);
}

void Http2Session::go_on(StreamId id) {
  const nghttp2_nv field = field_of(":status", "100");
  if (find(id))
    ::nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, id, nullptr, &field, 1, nullptr);
}

void Http2Session::widen(StreamId id) {
  if (find(id))
    ::nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, id,
                                            limits_.wide_window_bytes);
}

bool Http2Session::can_open() const {
  return ::nghttp2_session_check_request_allowed(session_) != 0 &&
         streams_.size() < ::nghttp2_session_get_remote_settings(
                               session_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

Result<Http2Session::StreamId> Http2Session::open(const Http2Fields& fields, bool end) {
  const auto list = fields_of(fields);
  const auto body = Http2Callbacks::body();
  const auto id = ::nghttp2_submit_request(session_, nullptr, list.data(), list.size(),
                                           end ? nullptr : &body, nullptr);
  if (id < 0)
    return fail(Code::unavailable, fmt::format("HTTP/2: {}", ::nghttp2_strerror(id)));
  add(id).finished = end;
  return id;
}

void Http2Session::send(StreamId id, std::string_view data) {
  Stream* stream = find(id);
  if (!stream || stream->finished || data.empty())
    return;
  if (stream->out_at > limits_.queued_bytes_max) {
    stream->out.erase(0, stream->out_at);
    stream->out_at = 0;
  }
  stream->out.append(data);
  queued_in_all_ += data.size();
  if (std::exchange(stream->waits, false))
    ::nghttp2_session_resume_data(session_, id);
}

void Http2Session::finish(StreamId id, const Http2Fields* trailers) {
  Stream* stream = find(id);
  if (!stream || stream->finished)
    return;
  stream->finished = true;
  if (trailers && trailers->size() > 0) {
    stream->has_trailers = true;
    stream->out_trailers = *trailers;
  }
  if (std::exchange(stream->waits, false))
    ::nghttp2_session_resume_data(session_, id);
}

void Http2Session::drop_the_rest(StreamId id) {
  Stream* stream = find(id);
  if (!stream)
    return;
  stream->unwanted = true;
  resume(id);
  drop(*stream, 0);
}

// Many clients lose an answer that is followed by a reset while they are still sending.
void Http2Session::drop(Stream& stream, std::size_t bytes) {
  stream.dropped += bytes;
  if (stream.ended && stream.dropped > limits_.dropped_bytes_max)
    reset(stream.id, Http2Error::none);
}

void Http2Session::reset(StreamId id, Http2Error error) {
  ::nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, static_cast<std::uint32_t>(error));
}

void Http2Session::pause(StreamId id) {
  if (Stream* stream = find(id))
    stream->paused = true;
}

void Http2Session::resume(StreamId id) {
  Stream* stream = find(id);
  if (!stream)
    return;
  stream->paused = false;
  if (stream->untaken > 0)
    took(*stream, stream->untaken);
}

bool Http2Session::congested(StreamId id) {
  Stream* stream = find(id);
  if (!stream || (stream->queued() <= limits_.queued_bytes_max &&
                  queued_in_all_ <= limits_.queued_in_all_bytes_max))
    return false;
  if (!std::exchange(stream->congested, true))
    congested_.push_back(id);
  return true;
}

std::size_t Http2Session::queued(StreamId id) const {
  const Stream* stream = find(id);
  return stream ? stream->queued() : 0;
}

std::uint64_t Http2Session::sent(StreamId id) const {
  const Stream* stream = find(id);
  return stream ? stream->sent : 0;
}

}  // namespace billow::net
