// Fabric checks over an agent's connection: a small protocol of its own beside agent_v1, in the
// same frames, told apart by the type, which begins with "fabric_". An agent that does not know it
// logs that and continues; the head stops waiting after a while.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/result.h"

namespace billow::wire::fabric_v1 {

enum class Step {
  gpus,    // measure the copies between your GPUs
  listen,  // open a port on this address for the peer that presents the secret
  dial,    // send to it
  keep,    // these figures are of you
};
}  // namespace billow::wire::fabric_v1
namespace billow {
BILLOW_ENUM_NAMES(wire::fabric_v1::Step,
                  {wire::fabric_v1::Step::gpus, "gpus"},
                  {wire::fabric_v1::Step::listen, "listen"},
                  {wire::fabric_v1::Step::dial, "dial"},
                  {wire::fabric_v1::Step::keep, "keep"});
}  // namespace billow
namespace billow::wire::fabric_v1 {

struct Ask {
  static constexpr const char* kind = "fabric_ask";
  std::uint64_t id = 0;
  Step step = Step::gpus;
  std::string secret;
  std::string address;
  std::uint16_t port = 0;
  Duration lasts;
  std::map<std::string, std::string> labels;  // an empty one goes
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("step", s.step);
    v("secret", s.secret);
    v("address", s.address);
    v("port", s.port);
    v("lasts_ns", s.lasts);
    v("labels", s.labels);
  }
};

struct Pair {
  std::int32_t
      from = 0,
      to = 0;  // GPUs by their index on the node; from -1: the host, the slower of both directions
  std::int64_t mb_s = 0;
  std::int64_t expected_mb_s = 0;  // by the hardware; 0: not known
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("from", s.from);
    v("to", s.to);
    v("mb_s", s.mb_s);
    v("expected_mb_s", s.expected_mb_s);
  }
};

struct Answer {
  static constexpr const char* kind = "fabric_answer";
  std::uint64_t id = 0;
  std::string error;
  std::vector<Pair> pairs;
  std::uint16_t port = 0;
  std::int64_t mbit_s = 0, latency_us = 0;
  std::string interface;
  std::int64_t interface_mbit_s = 0;   // 0: the kernel does not say
  std::int64_t infiniband_mbit_s = 0;  // of the fastest port; 0: there is none
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("error", s.error);
    v("pairs", s.pairs);
    v("port", s.port);
    v("mbit_s", s.mbit_s);
    v("latency_us", s.latency_us);
    v("interface", s.interface);
    v("interface_mbit_s", s.interface_mbit_s);
    v("infiniband_mbit_s", s.infiniband_mbit_s);
  }
};

std::string encode(const Ask& ask);
std::string encode(const Answer& answer);
// Whether a frame is of this protocol at all; cheap, for every frame is asked.
bool is_fabric(std::string_view frame);
Result<Ask> decode_ask(std::string_view frame);
Result<Answer> decode_answer(std::string_view frame);

}  // namespace billow::wire::fabric_v1
