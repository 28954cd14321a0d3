#include "gateway/http2_probe.h"

#include "gateway/grpc.h"

namespace billow::gateway {
namespace {
constexpr std::size_t health_bytes_max = 4096;
}

Http2Probe::Http2Probe(net::Loop& loop, Options options, Done done)
    : loop_(loop),
      options_(std::move(options)),
      done_(std::move(done)),
      session_(net::Http2Session::Role::client, *this) {}

Http2Probe::~Http2Probe() {
  if (stream_)
    stream_->close();
}

std::shared_ptr<Http2Probe> Http2Probe::start(net::Loop& loop,
                                              const Upstream& upstream,
                                              Options options,
                                              Done done) {
  auto probe = std::make_shared<Http2Probe>(loop, std::move(options), std::move(done));
  probe->ask(upstream);
  return probe;
}

void Http2Probe::ask(const Upstream& upstream) {
  auto fd = net::start_connect(upstream.address);
  if (!fd)
    return loop_.post([self = shared_from_this(), why = fd.error()] {
      self->finish(fail(why.code, why.message));
    });
  stream_ = std::make_shared<net::Stream>(loop_, net::Transport(std::move(*fd)), this);
  timer_ = loop_.after(options_.timeout, [weak = weak_from_this()] {
    if (const auto self = weak.lock())
      self->finish(fail(Code::timed_out, "the replica did not answer its health check"));
  });
  net::Http2Fields fields;
  fields.add(":method", options_.grpc ? "POST" : "GET");
  fields.add(":scheme", "http");
  fields.add(":path", options_.grpc           ? "/grpc.health.v1.Health/Check"
                      : options_.path.empty() ? "/"
                                              : options_.path);
  fields.add(":authority", upstream.name);
  fields.add("user-agent", "billow-gateway health");
  if (options_.grpc) {
    fields.add("content-type", "application/grpc");
    fields.add("te", "trailers");
  }
  if (const auto opened = session_.open(fields, !options_.grpc); opened && options_.grpc) {
    const std::string_view service =
        options_.path.empty() ? std::string_view() : std::string_view(options_.path).substr(1);
    session_.send(*opened, grpc_health_request(service));
    session_.finish(*opened);
  }
  stream_->start();
  flush();
}

void Http2Probe::flush() {
  std::string out;
  session_.take_output(out, health_bytes_max);
  stream_->send(std::move(out));
}

void Http2Probe::stream_data(std::string_view data) {
  const auto keep = shared_from_this();
  if (const auto received = session_.receive(data, loop_.steady()); !received)
    return finish(fail(Code::invalid, received.error().message));
  if (!over())
    flush();
}

void Http2Probe::stream_head(Id, net::HttpParser::Head& head, bool) {
  status_ = head.status;
  grpc_status_ = head.headers.get("grpc-status");
}

void Http2Probe::stream_body(Id, std::string_view data) {
  body_.append(data.substr(0, health_bytes_max - std::min(health_bytes_max, body_.size())));
}

void Http2Probe::stream_end(Id, const net::Headers& trailers) {
  if (!options_.grpc)
    return finish(status_);
  if (grpc_status_.empty())
    grpc_status_ = trailers.get("grpc-status");
  if (status_ != 200 || grpc_status_.empty())
    return finish(status_ == 200 ? 500 : status_);
  const int status = http_status_of_grpc(grpc_status_);
  finish(status == 200 && !grpc_health_serving(body_) ? 503 : status);
}

void Http2Probe::stream_closed(Id, net::Http2Error) {
  finish(fail(Code::unavailable, "the replica reset the health check"));
}

// The session may be in the middle of a call: the connection is closed with the object.
void Http2Probe::finish(Result<int> result) {
  if (const auto done = std::exchange(done_, nullptr)) {
    timer_.cancel();
    loop_.post([keep = shared_from_this(), done, result = std::move(result)] {
      if (keep->stream_)
        keep->stream_->close();
      done(result);
    });
  }
}

}  // namespace billow::gateway
