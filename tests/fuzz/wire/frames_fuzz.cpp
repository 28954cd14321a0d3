// libFuzzer over the frames between head and agent: tasks, tunnels, copies and measured links. The
// first byte chooses the reader; the rest is a whole frame, or the JSON of one. Whatever the bytes,
// a frame that is read can be written, and is read again as the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "core/wire/agent_v1.h"
#include "core/wire/copy.h"
#include "core/wire/fabric_v1.h"
#include "core/wire/log_frames.h"
#include "core/wire/tunnel.h"

namespace {

using namespace billow::wire;

std::string framed(std::string_view json) {
  std::string out(4, '\0');
  for (std::size_t i = 0; i < 4; ++i)
    out[i] = static_cast<char>(json.size() >> (8 * i));
  return out.append(json);
}

template <class Decode, class Encode>
void read_twice(std::string_view frame, Decode decode, Encode encode) {
  const auto message = decode(frame);
  if (!message)
    return;
  const std::string written = encode(*message);
  const auto again = decode(written);
  BILLOW_CHECK(again.has_value(), "what was written can be read");
  BILLOW_CHECK(encode(*again) == written, "as the same");
}

void read_records(std::string_view bytes) {
  std::uint64_t next = 7;
  const bool whole = for_each_record(bytes, next, [&](const LogRecord& record) {
    BILLOW_CHECK(record.offset == next, "records follow each other");
    BILLOW_CHECK(record.data.data() >= bytes.data() &&
                     record.data.data() + record.data.size() <= bytes.data() + bytes.size(),
                 "inside the frames");
    next = record.next_offset();
  });
  BILLOW_CHECK(!whole || next == 7 + bytes.size(), "all of them");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string frame = data[0] & 0x80 ? std::string(rest) : framed(rest);
  const auto encode_frame = [](const auto& f) {
    return agent_v1::encode(f.message, f.blob);
  };
  switch (data[0] % 7) {
    case 0:
      read_twice(frame, agent_v1::decode_from_agent, encode_frame);
      break;
    case 1:
      read_twice(frame, agent_v1::decode_to_agent, encode_frame);
      break;
    case 2: {
      const std::string tunnelled = std::string("\xfe\xff\xff\xff", 4) + frame;
      BILLOW_CHECK(agent_v1::is_tunnel_frame(tunnelled), "the mark of tunnels");
      read_twice(tunnelled, agent_v1::decode_tunnel, [](const agent_v1::TunnelFrame& f) {
        return agent_v1::encode_tunnel(f.message, f.blob);
      });
      break;
    }
    case 3:
      if (agent_v1::is_copy_frame(rest))
        read_twice(rest, agent_v1::decode_copy, agent_v1::encode_copy);
      break;
    case 4:
      if (fabric_v1::is_fabric(rest))
        read_twice(rest, fabric_v1::decode_ask,
                   [](const fabric_v1::Ask& a) { return fabric_v1::encode(a); });
      break;
    case 5:
      if (fabric_v1::is_fabric(rest))
        read_twice(rest, fabric_v1::decode_answer,
                   [](const fabric_v1::Answer& a) { return fabric_v1::encode(a); });
      break;
    default:
      read_records(rest);
  }
  return 0;
}
