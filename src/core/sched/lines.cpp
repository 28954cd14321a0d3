#include "core/sched/lines.h"

#include <algorithm>
#include <cmath>

namespace billow::sched {
namespace {

bool later(const Front& a, const Front& b) {
  return b.key() < a.key();
}

}  // namespace

double queue_level(std::int32_t priority, Duration waited, Duration starve_after) {
  const double scale = std::copysign(std::log2(1.0 + std::abs(static_cast<double>(priority))),
                                     static_cast<double>(priority));
  if (starve_after.ns <= 0 || waited < starve_after)
    return scale;
  return scale + static_cast<double>(waited.ns) / static_cast<double>(starve_after.ns) - 1;
}

void LinePart::add(const Front& front) {
  if (!front.fed)
    return add_again(front);  // by age, which may differ from the project's order
  streams_[static_cast<std::size_t>(-front.tier_down)].fronts.push_back(front);
  ++left_;
}

void LinePart::add_again(const Front& front) {
  again_.push_back(front);
  std::ranges::push_heap(again_, later);
  ++left_;
}

int LinePart::first_stream() const {
  const Front* best = again_.empty() ? nullptr : &again_.front();
  int found = -1;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& s = streams_[i];
    if (s.at == s.fronts.size() || (best && !(s.fronts[s.at].key() < best->key())))
      continue;
    best = &s.fronts[s.at];
    found = static_cast<int>(i);
  }
  return found;
}

const Front& LinePart::first() const {
  const int i = first_stream();
  if (i < 0)
    return again_.front();
  const Stream& s = streams_[static_cast<std::size_t>(i)];
  return s.fronts[s.at];
}

Front LinePart::take_first() {
  const int i = first_stream();
  --left_;
  if (i >= 0) {
    Stream& s = streams_[static_cast<std::size_t>(i)];
    return s.fronts[s.at++];
  }
  std::ranges::pop_heap(again_, later);
  const Front front = again_.back();
  again_.pop_back();
  return front;
}

bool LinePart::operator>(const LinePart& o) const {
  const Front &a = first(), &b = o.first();
  return std::tie(a.tier_down, a.level_down, a.fed, a.since_ns, share_, a.rank, a.job) >
         std::tie(b.tier_down, b.level_down, b.fed, b.since_ns, o.share_, b.rank, b.job);
}

void Line::form() {
  for (auto& [user, part] : parts_) {
    if (!part.empty())
      order_.push(&part);
  }
}

Front Line::take_first() {
  taken_ = order_.top();
  order_.pop();
  return taken_->take_first();
}

void Line::put_back() {
  if (taken_ && !taken_->empty())
    order_.push(taken_);
  taken_ = nullptr;
}

bool Line::operator>(const Line& o) const {
  const Front &a = first(), &b = o.first();
  return std::tie(a.tier_down, a.level_down, a.fed, a.since_ns, share_, a.rank, a.job) >
         std::tie(b.tier_down, b.level_down, b.fed, b.since_ns, o.share_, b.rank, b.job);
}

void Lines::form() {
  for (Line& line : all_) {
    line.form();
    put_back(line);
  }
}

void Lines::put_back(Line& line) {
  line.put_back();
  if (!line.empty())
    order_.push(&line);
}

Line& Lines::take() {
  Line* line = order_.top();
  order_.pop();
  return *line;
}

}  // namespace billow::sched
