// libFuzzer over what the root helper of a node reads from its agent: requests and orders. The
// first byte chooses which; the rest is the text. Whatever the bytes, what is read is within the
// limits that the helper relies on, and is read again as the same when it is written.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "core/wire/codec.h"
#include "privileged/protocol.h"

namespace {

using namespace billow::privileged;

void try_request(std::string_view text) {
  const auto request = read_request(text);
  if (!request)
    return;
  BILLOW_CHECK(request->version == protocol_version, "a version that this helper speaks");
  BILLOW_CHECK(request->verb == Verb::hello ||
                   (request->task > 0 && request->task <= std::uint64_t{INT64_MAX}),
               "a task has a number");
  BILLOW_CHECK(request->cpu_milli >= 0 && request->mem_mib >= 0 && request->pids_max >= 0,
               "limits are not negative");
  if (request->verb == Verb::secret)
    BILLOW_CHECK(!request->name.empty() && request->name.front() != '.' &&
                     request->name.find_first_of(std::string_view("/\0", 2)) == std::string::npos,
                 "a name is one component of a path");
  if (request->verb == Verb::signal)
    BILLOW_CHECK(request->pid > 1 && request->number > 0, "a signal reaches one process");
  const std::string written = billow::wire::to_json_text(*request);
  const auto again = read_request(written);
  BILLOW_CHECK(again.has_value(), "what was written can be read");
  BILLOW_CHECK(billow::wire::to_json_text(*again) == written, "as the same");
}

void try_order(std::string_view text) {
  const auto order = read_order(text);
  if (!order)
    return;
  BILLOW_CHECK(!order->argv.empty() && order->cwd.front() == '/', "a command and its directory");
  for (const auto* texts : {&order->argv, &order->env, &order->hide_devices, &order->shown})
    for (const std::string& one : *texts)
      BILLOW_CHECK(one.find('\0') == std::string::npos, "no text ends early");
  const std::string written = billow::wire::to_json_text(*order);
  const auto again = read_order(written);
  BILLOW_CHECK(again.has_value(), "what was written can be read");
  BILLOW_CHECK(billow::wire::to_json_text(*again) == written, "as the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  if ((data[0] & 1) == 0)
    try_request(text);
  else
    try_order(text);
  return 0;
}
