#include "client/top/fleet.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/relative_time.h"

namespace billow::client::top {

void Trail::add(std::int64_t value) {
  if (values_.size() >= trail_max)
    values_.erase(values_.begin());
  values_.push_back(static_cast<std::int32_t>(
      std::clamp<std::int64_t>(value, -1, std::numeric_limits<std::int32_t>::max())));
}

std::vector<double> Trail::newest(std::size_t count) const {
  std::vector<double> out;
  for (std::size_t i = values_.size() - std::min(count, values_.size()); i < values_.size(); ++i)
    out.push_back(values_[i] < 0 ? std::numeric_limits<double>::quiet_NaN() : values_[i]);
  return out;
}

// Suspended time is not run time.
std::int64_t JobEntry::spent_ms(std::int64_t now_ms) const {
  std::int64_t spent = now_ms - (since ? since : submitted);
  if (has_ended())
    spent = ran;
  else if (state == "suspended")
    spent = suspended + (since ? now_ms - since : 0);
  else if (state == "running" && ran >= 0 && since)
    spent = ran + now_ms - since;
  else if (state == "running" && started)
    spent = now_ms - started;
  return std::max<std::int64_t>(0, spent);
}

std::int64_t JobEntry::cost(std::int64_t now_ms) const {
  if (!rate_nano || !at)
    return cost_nano;
  return cost_nano + rate_nano * std::max<std::int64_t>(0, now_ms - at) / 1000;
}

bool You::may_change_jobs() const {
  return !known || (role != "viewer" && scope != "read");
}
bool You::may_drain() const {
  return !known || permissions.contains("nodes.drain") ||
         (permissions.empty() && role == "admin" && scope == "full");
}

bool Fleet::is_idle(const JobEntry& job) const {
  return job.state == "running" && idle_jobs.contains(job.id);
}

const JobEntry* Fleet::job(std::uint64_t id) const {
  if (const auto found = jobs.find(id); found != jobs.end())
    return &found->second;
  const auto past = std::ranges::find(ended, id, &JobEntry::id);
  return past == ended.end() ? nullptr : &*past;
}

const NodeEntry* Fleet::node_by_name(std::string_view name) const {
  for (const auto& [id, node] : nodes)
    if (node.name == name)
      return &node;
  return nullptr;
}

std::string Fleet::holder(const Card& card) const {
  std::string out;
  for (const std::uint64_t id : card.jobs)
    if (const auto found = jobs.find(id); found != jobs.end())
      out +=
          fmt::format("{}{} {}", out.empty() ? "" : ", ", found->second.user, found->second.name);
  return out.empty() && card.milli ? "another project" : out;
}

CardWord Fleet::word_of(const NodeEntry& node, std::size_t index, std::int64_t now_ms) const {
  const Card& card = node.cards[index];
  const std::string who = holder(card);
  const auto also = [&](std::string text) {
    return who.empty() ? text : fmt::format("{}; held by {}", text, who);
  };
  if (node.state == "unreachable")
    return {CardState::lost, also("lost: node unreachable"), Colour::red};
  if (!card.trouble.empty()) {
    const bool sick = !card.fault.empty() || (card.score >= 0 && card.score < 50);
    return {sick ? CardState::sick : CardState::drained,
            also(fmt::format("{}: {}", sick ? "sick" : "drained", card.trouble)),
            sick ? Colour::red : Colour::yellow};
  }
  if (node.state == "drained")
    return {CardState::drained,
            also(node.reason.empty() ? "drained" : fmt::format("drained: {}", node.reason)),
            Colour::yellow};
  // Reserved is what a reservation keeps free; a card that a job holds inside one is in use.
  const auto inside = std::ranges::find_if(reservations, [&](const HeldCards& held) {
    return held.node == node.name && held.from_ms <= now_ms && now_ms < held.until_ms &&
           std::ranges::find(held.gpus, static_cast<std::int64_t>(index)) != held.gpus.end();
  });
  if (inside != reservations.end() && card.milli < 1000)
    return {CardState::reserved,
            also(fmt::format("reserved for {}, {} left", inside->project,
                             rough_duration(milliseconds(inside->until_ms - now_ms)))),
            Colour::cyan};
  if (card.reserved > 0)  // the stream says it before the list of reservations has been read
    return {CardState::reserved, also("reserved"), Colour::cyan};
  if (who.empty())
    return {CardState::free, "free", Colour::dim};
  const bool idle = card.util >= 0 && card.util < 2;
  return {idle ? CardState::idle : CardState::used, idle ? who + " (idle)" : who,
          idle ? Colour::yellow : Colour::none};
}

CardCounts Fleet::counts(std::int64_t now_ms) const {
  CardCounts out;
  for (const auto& [id, node] : nodes)
    for (std::size_t i = 0; i < node.cards.size(); ++i) {
      ++out.all;
      const CardState state = word_of(node, i, now_ms).state;
      out.reserved += state == CardState::reserved;
      out.drained += state == CardState::drained;
      out.sick += state == CardState::sick;
      out.lost += state == CardState::lost;
      if (state == CardState::free || state == CardState::used || state == CardState::idle)
        out.free_milli += std::clamp<std::int64_t>(1000 - node.cards[i].milli, 0, 1000);
    }
  return out;
}

std::vector<double> Fleet::busy_of(const JobEntry& job, std::int64_t now_ms) const {
  const std::int64_t run_ms = job.since ? now_ms - job.since : 0;
  const auto samples =
      static_cast<std::size_t>(std::clamp<std::int64_t>(run_ms / sample_every.ms(), 0, trail_max));
  std::vector<double> sum(samples, 0), known(samples, 0);
  for (const auto& [node_id, cards] : job.where) {
    const auto node = nodes.find(node_id);
    if (node == nodes.end())
      continue;
    for (const std::int64_t index : cards) {
      if (index < 0 || index >= std::ssize(node->second.cards))
        continue;
      const auto values = node->second.cards[static_cast<std::size_t>(index)].busy.newest(samples);
      const std::size_t shift = samples - values.size();
      for (std::size_t i = 0; i < values.size(); ++i)
        if (!std::isnan(values[i])) {
          sum[shift + i] += values[i];
          ++known[shift + i];
        }
    }
  }
  for (std::size_t i = 0; i < samples; ++i)
    sum[i] = known[i] > 0 ? sum[i] / known[i] : std::numeric_limits<double>::quiet_NaN();
  return sum;
}

std::string Fleet::places_of(const JobEntry& job) const {
  std::string out;
  for (const auto& [id, cards] : job.where) {
    const auto node = nodes.find(id);
    out += fmt::format("{}{}", out.empty() ? "" : " ",
                       node == nodes.end() ? fmt::format("node {}", id) : node->second.name);
    for (std::size_t i = 0; i < cards.size(); ++i)
      out += fmt::format("{}{}", i ? "," : ":", cards[i]);
  }
  return out;
}

}  // namespace billow::client::top
