// libFuzzer over the short texts that people write in options and requests: times, schedules,
// sizes, money, arrays, addresses, patterns. The first byte chooses. What is written back is read
// as the same, and no number leaves its bounds.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/glob.h"
#include "base/money.h"
#include "base/text.h"
#include "core/control/decide/cron.h"
#include "core/ledger/decimal.h"
#include "core/model/address_block.h"
#include "core/model/array_spec.h"
#include "core/model/timed_min.h"
#include "core/sched/mig.h"
#include "net/address.h"
#include "net/http/http.h"
#include "net/http/proxy.h"

namespace {

using namespace billow;

void schedules(std::string_view text) {
  if (const auto cron = control::parse_cron(text)) {
    const WallTime now{1'700'000'000'000'000'000};
    const WallTime next = control::next_match(*cron, now);
    BILLOW_CHECK(next.ns == 0 || next > now, "the next time is later");
    BILLOW_CHECK(next.ns % 60'000'000'000 == 0, "a whole minute");
    if (next.ns != 0)
      BILLOW_CHECK(control::next_match(*cron, next) != next, "each minute once");
  }
  if (const auto period = parse_timed_min(text)) {
    BILLOW_CHECK(period->from_minute >= 0 && period->from_minute <= 1440, "a minute of the day");
    BILLOW_CHECK(period->to_minute >= 0 && period->to_minute <= 1440, "a minute of the day");
    (void)period->applies(WallTime{1'700'000'000'000'000'000});
  }
}

void amounts(std::string_view text) {
  if (const auto duration = parse_duration(text)) {
    BILLOW_CHECK(duration->ns >= 0, "no time is negative");
    BILLOW_CHECK(parse_duration(text)->ns == duration->ns, "always the same");
    (void)format_duration(*duration);
  }
  if (const auto bytes = parse_bytes(text))
    (void)format_bytes(*bytes);
  if (const auto amount = parse_usd(text))
    (void)format_usd(*amount);
  if (const auto amount = ledger::parse_decimal_usd(text)) {
    const auto again = ledger::parse_decimal_usd(ledger::decimal_usd(*amount));
    BILLOW_CHECK(again && *again == *amount, "to the last nano-dollar");
  }
  if (const auto milli = parse_milli(text))
    BILLOW_CHECK(*milli >= 0, "no part is negative");
  (void)parse_int(text, -5, 5);
  if (const auto number = parse_double(text, -1, 1e9))
    BILLOW_CHECK(*number >= -1 && *number <= 1e9, "in its bounds");
}

void arrays(std::string_view text) {
  if (const auto array = parse_array(text))
    BILLOW_CHECK(check_indices(*array).has_value(), "what is read is allowed");
  (void)sched::parse_mig_profile(text);
  const auto offer = sched::parse_mig_offer(split(text, ' '));
  for (const auto& place : offer.places)
    BILLOW_CHECK(place.start >= 0 && place.start < 32, "a bit of a card's slices");
}

void addresses(std::string_view text) {
  if (const auto block = AddressBlock::parse(text)) {
    const auto again = AddressBlock::parse(block->text());
    BILLOW_CHECK(again && *again == *block, "reads back as the same");
    BILLOW_CHECK(block->within(*block), "it is in itself");
  }
  (void)parse_allowed(split(text, ','));
  if (const auto address = net::parse_address(text)) {
    const auto again = net::parse_address(address->text());
    BILLOW_CHECK(again && *again == *address, "reads back as the same");
  }
  if (const auto endpoint = net::parse_endpoint(text)) {
    const auto again = net::parse_endpoint(endpoint->text());
    BILLOW_CHECK(again && *again == *endpoint, "reads back as the same");
    for (const char c : endpoint->host_header())
      BILLOW_CHECK(c != '\r' && c != '\n', "a header is one line");
  }
  if (const auto url = net::parse_url(text))
    BILLOW_CHECK(url->target.find_first_of("\r\n ") == std::string::npos, "a target is one word");
  (void)net::parse_proxy(text);
  (void)net::connect_answer(text, {});
}

void targets(std::string_view text) {
  net::Request request;
  if (net::parse_target(text, request))
    BILLOW_CHECK(request.target == text, "as it was sent");
  if (text.find('\0') != text.npos)
    return;  // neither has such a byte: the parser of requests refuses it before
  if (const auto plain = net::percent_decode(text, true)) {
    const auto again = net::percent_decode(net::percent_encode(*plain));
    BILLOW_CHECK(again && *again == *plain, "encoded and decoded");
  }
}

// "PATTERN\0TEXT"
void patterns(std::string_view text) {
  const auto cut = std::min(text.find('\0'), text.size());
  const std::string_view pattern = text.substr(0, cut),
                         path = text.substr(std::min(cut + 1, text.size()));
  std::size_t steps = 0;
  (void)PathGlob(pattern).matches(path, &steps);
  BILLOW_CHECK(steps <= (pattern.size() + 2) * (path.size() + 2), "no pattern is slow");
  (void)star_matches(pattern, path);
  if (pattern.find('*') == pattern.npos)
    BILLOW_CHECK(star_matches(pattern, pattern), "it matches itself");
}

void words(std::string_view text) {
  const std::string good = repaired_utf8(text);
  BILLOW_CHECK(valid_utf8(good), "repaired");
  BILLOW_CHECK(!valid_utf8(text) || good == text, "what is valid stays");
  const std::string_view part = utf8_prefix(good, good.size() / 2);
  BILLOW_CHECK(valid_utf8(part) && good.starts_with(part), "no character is cut");
  (void)nearest(text, {"gpus", "gpu-type", "time"});
  BILLOW_CHECK(!shell_quote(text).empty(), "a word stays a word");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  static void (*const readers[])(std::string_view) = {schedules, amounts,  arrays, addresses,
                                                      targets,   patterns, words};
  readers[data[0] % std::size(readers)](text);
  return 0;
}
