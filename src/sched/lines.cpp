#include "sched/lines.h"

#include <algorithm>

namespace billow::sched {
namespace {

bool later(const Front& a, const Front& b) { return b.key() < a.key(); }

}  // namespace

void Line::add(const Front& front) {
  streams_[static_cast<std::size_t>(-front.tier_down * 2 + (front.fed ? 1 : 0))].fronts.push_back(front);
  ++left_;
}

void Line::add_again(const Front& front) {
  again_.push_back(front);
  std::ranges::push_heap(again_, later);
  ++left_;
}

int Line::first_stream() const {
  const Front* best = again_.empty() ? nullptr : &again_.front();
  int found = -1;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& s = streams_[i];
    if (s.at == s.fronts.size() || (best && !(s.fronts[s.at].key() < best->key()))) continue;
    best = &s.fronts[s.at];
    found = static_cast<int>(i);
  }
  return found;
}

const Front& Line::first() const {
  const int i = first_stream();
  if (i < 0) return again_.front();
  const Stream& s = streams_[static_cast<std::size_t>(i)];
  return s.fronts[s.at];
}

Front Line::take_first() {
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

bool Line::operator>(const Line& o) const {
  const Front &a = first(), &b = o.first();
  return std::tie(a.tier_down, a.priority_down, a.fed, share_, a.rank, a.job) > std::tie(b.tier_down, b.priority_down, b.fed, o.share_, b.rank, b.job);
}

void Lines::form() {
  for (Line& line : all_) put_back(line);
}

Line& Lines::take() {
  Line* line = order_.top();
  order_.pop();
  return *line;
}

}  // namespace billow::sched
