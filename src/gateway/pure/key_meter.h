// What one key of an endpoint has used, and whether it may use more. Pure: the time is an argument.
//
// Limits count in windows of the clock (the minute, hour and UTC day of now). A request is counted
// when it begins. Its cost is known when it has ended, so until then it reserves what it will cost
// at least: the price of a request, and the tokens of the largest request of the day so far. A
// request begins only if the limit holds with all reservations; so a key never exceeds a limit
// in requests, nor one in dollars where only requests have a price.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "core/model/endpoint.h"

namespace billow::gateway {

struct KeyCounts {
  std::uint64_t requests = 0, refused = 0, tokens_in = 0, tokens_out = 0;
  NanoUsd charge;
  bool operator==(const KeyCounts&) const = default;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("requests", s.requests);
    v("refused", s.refused);
    v("tokens_in", s.tokens_in);
    v("tokens_out", s.tokens_out);
    v("charge", s.charge);
  }
};

// Counts of one window: the minute, hour or day of this number since 1970.
struct KeyWindow {
  std::int64_t number = 0;
  KeyCounts counts;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("number", s.number);
    v("counts", s.counts);
  }
};

struct KeyRefusal {
  KeyLimit limit;
  Duration wait;  // until the window ends
};

class KeyMeter {
 public:
  struct Reserved {
    std::uint64_t tokens = 0;
    NanoUsd usd;
  };
  // Counts a request, and reserves its cost in `reserved`; or says which limit refuses it.
  // `elsewhere`: what other gateways have counted today.
  std::optional<KeyRefusal> begin(const std::vector<KeyLimit>& limits,
                                  const EndpointPrices& prices,
                                  const KeyUse& elsewhere,
                                  WallTime now,
                                  Reserved& reserved);
  struct Used {
    bool charged = true;  // it was served
    std::uint64_t tokens_in = 0, tokens_out = 0;
  };
  NanoUsd end(const Reserved& reserved, const EndpointPrices& prices, Used used, WallTime now);

  // As kept on disk: the windows of the minute, hour and day, and the day before.
  std::vector<KeyWindow> saved() const;
  void restore(const std::vector<KeyWindow>& windows);
  // What another gateway has let the key use meanwhile.
  void add(const std::vector<KeyWindow>& windows);
  // Today and the day before, as far as there is something.
  std::vector<KeyWindow> days() const;

 private:
  void roll(WallTime now);
  bool allows(const KeyLimit& limit, const KeyUse& elsewhere, const Reserved& more) const;

  std::array<KeyWindow, 3> windows_;  // by LimitPer
  KeyWindow yesterday_;
  std::uint64_t tokens_max_ = 0;  // of one request today, and its cost
  NanoUsd tokens_usd_max_;
  std::uint64_t tokens_reserved_ = 0;
  NanoUsd usd_reserved_;
};

// What was used between two states of the same windows.
std::vector<KeyWindow> used_between(const std::vector<KeyWindow>& before,
                                    const std::vector<KeyWindow>& after);
NanoUsd price_of(const EndpointPrices& prices, std::uint64_t tokens_in, std::uint64_t tokens_out);
// "100 requests per minute", "$5.00 per day"
std::string limit_text(const KeyLimit& limit);

}  // namespace billow::gateway
