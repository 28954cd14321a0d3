// The readings of GPUs and nodes on the stream GET /v1/live. They come every two seconds from the
// whole fleet, so a stream keeps a hash of what it has sent of each card and sends what differs.
//
//   "gpus":  [node, gpu, thousandths held, busy %, MiB, W, °C, score, [jobs], fault, reserved]
//            `fault` is left out if both it and what follows are empty; `reserved` is the part of
//            the card, in thousandths, that a reservation keeps free (view::FleetCounts).
//   "links": [node, gpu, NVLink sent, NVLink received, PCIe sent, PCIe received], in KiB/s
//   "hosts": [node, thousandths of CPUs, MiB, network received, network sent], the last in KiB/s
//
// -1 is unknown. Of traffic only changes by about a fifth are sent: it never stands still.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/host.h"

namespace billow::api::streams {

inline std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x9e3779b97f4a7c15ull + (hash >> 29);
}
inline std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  return mix(hash, std::hash<std::string_view>{}(text));
}

// The step of a figure that never stands still: another number from about a fifth more or less.
std::uint64_t traffic_step(std::int64_t kib_s);

class LiveReadings {
 public:
  using Visible = std::function<bool(ProjectId)>;
  using Known = std::function<bool(NodeId)>;
  // Appends what has changed; false: nothing has. Nodes that `known` refuses come later: readings
  // of a node whose document was not sent would be dropped.
  bool add(std::string& out, const Host& host, const Visible& visible, const Known& known);
  void forget(NodeId node) { sent_.erase(node); }

 private:
  struct Sent {
    std::uint64_t host = 0;
    std::vector<std::uint64_t> cards, links;
  };
  std::unordered_map<NodeId, Sent> sent_;
};

}  // namespace billow::api::streams
