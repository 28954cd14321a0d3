// libFuzzer over what heads and gateways tell each other, and over stored figures of jobs. The
// first byte chooses. What is read can be written, and is read again as the same.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "gateway/messages.h"
#include "store/series.h"

namespace {

using namespace billow;

template <class Decode>
void read_twice(std::string_view text, Decode decode) {
  const auto message = decode(text);
  if (!message)
    return;
  const std::string written = gateway::encode(*message);
  const auto again = decode(written);
  BILLOW_CHECK(again.has_value(), "what was written can be read");
  BILLOW_CHECK(gateway::encode(*again) == written, "as the same");
}

void series(std::string_view bytes) {
  auto read = JobSeries::decode(bytes);
  if (!read)
    return;
  const auto again = JobSeries::decode(read->encode());
  BILLOW_CHECK(again && again->encode() == read->encode(), "reads back as the same");
  (void)read->mean();
  for (std::size_t i = 0; i < read->size(); ++i)
    (void)read->point(i);
  JobSample sample{};
  read->add(read->begin() + read->step(), sample);
  read->add(read->begin() + hours(1'000), sample);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      read_twice(bytes, gateway::decode_to_gateway);
      break;
    case 1:
      read_twice(bytes, gateway::decode_from_gateway);
      break;
    default:
      series(bytes);
  }
  return 0;
}
