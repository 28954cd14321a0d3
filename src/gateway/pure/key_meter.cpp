#include "gateway/pure/key_meter.h"

#include <algorithm>

#include <fmt/format.h>

namespace billow::gateway {
namespace {

Duration length_of(LimitPer per) {
  switch (per) {
    case LimitPer::minute:
      return minutes(1);
    case LimitPer::hour:
      return hours(1);
    case LimitPer::day:
      return hours(24);
  }
  return hours(24);
}

constexpr std::size_t day_window = static_cast<std::size_t>(LimitPer::day);

NanoUsd tokens_price(NanoUsd million, std::uint64_t tokens) {
  return {static_cast<std::int64_t>(static_cast<__int128>(million.value) *
                                    static_cast<__int128>(tokens) / 1'000'000)};
}

}  // namespace

NanoUsd price_of(const EndpointPrices& prices, std::uint64_t tokens_in, std::uint64_t tokens_out) {
  return prices.request + tokens_price(prices.million_tokens_in, tokens_in) +
         tokens_price(prices.million_tokens_out, tokens_out);
}

std::string limit_text(const KeyLimit& limit) {
  const char* per = limit.per == LimitPer::minute ? "minute"
                    : limit.per == LimitPer::hour ? "hour"
                                                  : "day";
  if (limit.of == LimitOf::usd)
    return fmt::format("{} per {}", format_usd({limit.amount}), per);
  return fmt::format("{} {} per {}", limit.amount, enum_name(limit.of), per);
}

void KeyMeter::roll(WallTime now) {
  for (std::size_t i = 0; i < windows_.size(); ++i) {
    const std::int64_t number = now.ns / length_of(static_cast<LimitPer>(i)).ns;
    if (windows_[i].number >= number)
      continue;  // a clock that is set back opens no new window
    if (i == day_window) {
      yesterday_ = windows_[i];
      tokens_max_ = 0;
      tokens_usd_max_ = {};
    }
    windows_[i] = {.number = number, .counts = {}};
  }
}

bool KeyMeter::allows(const KeyLimit& limit, const KeyUse& elsewhere, const Reserved& more) const {
  const KeyWindow& window = windows_[static_cast<std::size_t>(limit.per)];
  const KeyCounts& used = window.counts;
  const bool add = limit.per == LimitPer::day && elsewhere.day == window.number;
  const auto amount = static_cast<std::uint64_t>(limit.amount);
  switch (limit.of) {
    case LimitOf::requests:
      return used.requests + (add ? elsewhere.requests : 0) + 1 <= amount;
    case LimitOf::tokens: {
      const std::uint64_t sum = used.tokens_in + used.tokens_out + tokens_reserved_ + more.tokens +
                                (add ? elsewhere.tokens_in + elsewhere.tokens_out : 0);
      return more.tokens == 0 ? sum < amount : sum <= amount;
    }
    case LimitOf::usd: {
      const std::int64_t sum = used.charge.value + usd_reserved_.value + more.usd.value +
                               (add ? elsewhere.charge.value : 0);
      return more.usd.value == 0 ? sum < limit.amount : sum <= limit.amount;
    }
  }
  return true;
}

std::optional<KeyRefusal> KeyMeter::begin(const std::vector<KeyLimit>& limits,
                                          const EndpointPrices& prices,
                                          const KeyUse& elsewhere,
                                          WallTime now,
                                          Reserved& reserved) {
  roll(now);
  reserved = {.tokens = tokens_max_, .usd = prices.request + tokens_usd_max_};
  for (const KeyLimit& limit : limits) {
    if (allows(limit, elsewhere, reserved))
      continue;
    for (KeyWindow& window : windows_)
      ++window.counts.refused;
    reserved = {};
    const Duration length = length_of(limit.per);
    return KeyRefusal{limit, nanoseconds(length.ns - now.ns % length.ns)};
  }
  for (KeyWindow& window : windows_)
    ++window.counts.requests;
  tokens_reserved_ += reserved.tokens;
  usd_reserved_ += reserved.usd;
  return std::nullopt;
}

NanoUsd KeyMeter::end(const Reserved& reserved,
                      const EndpointPrices& prices,
                      Used used,
                      WallTime now) {
  roll(now);
  tokens_reserved_ -= std::min(tokens_reserved_, reserved.tokens);
  usd_reserved_ -= std::min(usd_reserved_, reserved.usd);
  if (!used.charged)
    return {};
  const NanoUsd charge = price_of(prices, used.tokens_in, used.tokens_out);
  tokens_max_ = std::max(tokens_max_, used.tokens_in + used.tokens_out);
  tokens_usd_max_ = std::max(tokens_usd_max_, charge - prices.request);
  for (KeyWindow& window : windows_) {
    window.counts.tokens_in += used.tokens_in;
    window.counts.tokens_out += used.tokens_out;
    window.counts.charge += charge;
  }
  return charge;
}

std::vector<KeyWindow> KeyMeter::saved() const {
  return {windows_[0], windows_[1], windows_[2], yesterday_};
}

void KeyMeter::restore(const std::vector<KeyWindow>& windows) {
  if (windows.size() != windows_.size() + 1)
    return;
  std::copy_n(windows.begin(), windows_.size(), windows_.begin());
  yesterday_ = windows.back();
}

void KeyMeter::add(const std::vector<KeyWindow>& windows) {
  for (std::size_t i = 0; i < windows_.size() && i < windows.size(); ++i) {
    const KeyWindow& more = windows[i];
    if (more.number > windows_[i].number && more.counts != KeyCounts{})
      windows_[i] = {.number = more.number, .counts = {}};
    if (more.number != windows_[i].number)
      continue;
    KeyCounts& counts = windows_[i].counts;
    counts.requests += more.counts.requests;
    counts.refused += more.counts.refused;
    counts.tokens_in += more.counts.tokens_in;
    counts.tokens_out += more.counts.tokens_out;
    counts.charge += more.counts.charge;
  }
}

std::vector<KeyWindow> used_between(const std::vector<KeyWindow>& before,
                                    const std::vector<KeyWindow>& after) {
  std::vector<KeyWindow> out = after;
  for (std::size_t i = 0; i < out.size() && i < before.size(); ++i) {
    if (before[i].number != out[i].number)
      continue;
    KeyCounts& counts = out[i].counts;
    counts.requests -= before[i].counts.requests;
    counts.refused -= before[i].counts.refused;
    counts.tokens_in -= before[i].counts.tokens_in;
    counts.tokens_out -= before[i].counts.tokens_out;
    counts.charge -= before[i].counts.charge;
  }
  return out;
}

std::vector<KeyWindow> KeyMeter::days() const {
  std::vector<KeyWindow> out;
  for (const KeyWindow& each : {yesterday_, windows_[day_window]})
    if (each.counts != KeyCounts{})
      out.push_back(each);
  return out;
}

}  // namespace billow::gateway
