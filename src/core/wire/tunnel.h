// Connections into a job, carried inside the agent's own: `billow port-forward` and `billow ssh`
// open one each. Bytes go in the blob, in order; the frames are marked, apart from the protocol's
// own. Each side may send only as much as the other has granted (`TunnelCredit`), so that a slow
// end delays only itself; at first that is tunnel_window_bytes. One side's `TunnelEnd` is its end
// of file; both, or one with a reason, are the end of the tunnel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "base/ids.h"
#include "base/result.h"

namespace billow::wire::agent_v1 {

inline constexpr std::uint64_t tunnel_window_bytes = 256 << 10;
inline constexpr std::size_t tunnel_piece_bytes_max = 64 << 10;
inline constexpr std::size_t tunnels_per_node_max =
    200;  // with full windows less than the queue of the connection that carries them
inline constexpr std::size_t tunnels_per_task_max =
    64;  // so that one job's users do not take all tunnels

// head → agent
struct TunnelOpen {
  static constexpr const char* kind = "tunnel_open";
  std::uint64_t tunnel = 0;
  TaskId task;
  std::uint16_t port = 0;      // of the job; 0: a secure shell in the job's place…
  std::string authorized_key;  // …for the holder of this key
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("tunnel", s.tunnel);
    v("task", s.task);
    v("port", s.port);
    v("authorized_key", s.authorized_key);
  }
};
// agent → head. An error is the end of it.
struct TunnelOpened {
  static constexpr const char* kind = "tunnel_opened";
  std::uint64_t tunnel = 0;
  std::string error;
  std::string host_key;  // of a secure shell: the public key it is known by
  std::string user;      // and whom one is there
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("tunnel", s.tunnel);
    v("error", s.error);
    v("host_key", s.host_key);
    v("user", s.user);
  }
};
// both ways
struct TunnelData {
  static constexpr const char* kind = "tunnel_data";
  std::uint64_t tunnel = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("tunnel", s.tunnel);
  }
};
struct TunnelCredit {
  static constexpr const char* kind = "tunnel_credit";
  std::uint64_t tunnel = 0;
  std::uint64_t bytes = 0;  // more that may be sent
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("tunnel", s.tunnel);
    v("bytes", s.bytes);
  }
};
struct TunnelEnd {
  static constexpr const char* kind = "tunnel_end";
  std::uint64_t tunnel = 0;
  std::string error;  // cut rather than ended; "": no more bytes come this way
  bool cut = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("tunnel", s.tunnel);
    v("error", s.error);
    v("cut", s.cut);
  }
};

using Tunnelled = std::variant<TunnelOpen, TunnelOpened, TunnelData, TunnelCredit, TunnelEnd>;
struct TunnelFrame {
  Tunnelled message;
  std::string blob;
};
bool is_tunnel_frame(std::string_view frame);
std::string encode_tunnel(const Tunnelled& message, std::string_view blob = {});
Result<TunnelFrame> decode_tunnel(std::string_view frame);

// An open tunnel from the head's side. Messages get their number here; destroying it cuts the
// tunnel.
class Tunnel {
 public:
  virtual ~Tunnel() = default;
  virtual bool send(Tunnelled message, std::string_view blob) = 0;  // false: the tunnel has ended
};
// TunnelOpened comes first, then data, credit and ends; nothing after a cut.
using OnTunnel = std::function<void(const Tunnelled&, std::string_view blob)>;

}  // namespace billow::wire::agent_v1
