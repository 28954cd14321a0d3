// How an HTTP/2 connection ends without losing a request.
#include <nghttp2/nghttp2.h>

#include "net/http2/http2_session.h"

namespace billow::net {

// This session sends no other pings, so any answer is one to this.
void Http2Session::announce_end() {
  if (std::exchange(announced_, true))
    return;
  ::nghttp2_submit_shutdown_notice(session_);
  ::nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
}

void Http2Session::go_away(Http2Error error) {
  ::nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                          ::nghttp2_session_get_last_proc_stream_id(session_),
                          static_cast<std::uint32_t>(error), nullptr, 0);
}

}  // namespace billow::net
