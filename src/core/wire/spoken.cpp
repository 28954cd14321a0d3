#include "core/wire/spoken.h"

#include "base/text.h"
#include "core/wire/agent_v1.h"

namespace billow::wire {

int spoken_protocol(const char* asked) {
  const auto number =
      asked ? parse_int(asked, 1, 1000) : Result<std::int64_t>(agent_v1::protocol_version);
  return number ? static_cast<int>(*number) : agent_v1::protocol_version;
}

}  // namespace billow::wire
