#include "core/ledger/books.h"

#include <fmt/format.h>

#include <algorithm>

namespace billow::ledger {

namespace {

// rate × time × part/whole, rounded down.
NanoUsd piece(Rate rate, std::int64_t ns, std::int64_t part, std::int64_t whole) {
  if (ns <= 0 || part <= 0 || whole <= 0)
    return {};
  // 128 bits hold a year of a node at ten thousand dollars an hour with a part of a million; larger
  // values are reduced first.
  const __int128 money = static_cast<__int128>(rate.nano_usd_per_s) * ns;
  const __int128 unit = static_cast<__int128>(1'000'000'000) * whole;
  const __int128 quotient = money / unit, rest = money % unit;
  return {static_cast<std::int64_t>(quotient * part + rest * part / unit)};
}

// Visits the pieces [from, to) of a map of spans (each lasts until the next begins) that lie before
// `until`. Each piece is rounded down separately, so adjacent spans with the same terms, such as
// those around a moment in which a node did not answer, count as one piece.
template <class Spans, class F>
void for_pieces(const Spans& spans, WallTime until, F visit) {
  for (auto at = spans.begin(); at != spans.end() && at->first < until.ns;) {
    auto next = std::next(at);
    while (next != spans.end() && next->second.same_terms(at->second))
      ++next;
    visit(at->second, at->first, std::min(until.ns, next == spans.end() ? INT64_MAX : next->first));
    at = next;
  }
}

}  // namespace

Status Books::apply(Seq seq, const Fact& fact) {
  if (seq <= last_seq_)
    return {};
  const Status added = std::visit([this](const auto& f) { return add(f); }, fact);
  if (added)
    last_seq_ = seq;
  return added;
}

Status Books::add(const NodePriced& fact) {
  if (!fact.node || fact.rate.nano_usd_per_s < 0 || fact.capacity_milli < 0)
    return fail(Code::invalid,
                fmt::format("node {}: a price or capacity is negative", fact.node.value));
  nodes_[fact.node].spans[fact.at.ns] = {fact.at, fact.rate, fact.capacity_milli};
  return {};
}

Status Books::add(const NodeGone& fact) {
  const auto node = nodes_.find(fact.node);
  if (node == nodes_.end())
    return fail(Code::not_found, fmt::format("node {} has no price", fact.node.value));
  // Later facts about it no longer apply; a node that comes back gets a new price.
  node->second.spans.erase(node->second.spans.lower_bound(fact.at.ns), node->second.spans.end());
  node->second.spans[fact.at.ns] = {fact.at, {}, 0};
  return {};
}

Status Books::add(const LeaseOpened& fact) {
  if (!fact.lease || fact.milli < 0 || fact.rate.nano_usd_per_s < 0)
    return fail(Code::invalid,
                fmt::format("lease {}: a share or rate is negative", fact.lease.value));
  if (leases_.contains(fact.lease))
    return fail(Code::conflict, fmt::format("lease {} is already open", fact.lease.value));
  LeaseBook book;
  book.opened = fact;
  book.spans[fact.at.ns] = {fact.at,    fact.node,  fact.price_class,
                            fact.milli, fact.milli, fact.rate};
  leases_.emplace(fact.lease, std::move(book));
  return {};
}

Status Books::add(const LeaseChanged& fact) {
  const auto lease = leases_.find(fact.lease);
  if (lease == leases_.end())
    return fail(Code::not_found, fmt::format("unknown lease {}", fact.lease.value));
  if (fact.milli < 0 || fact.charged_milli < 0 || fact.rate.nano_usd_per_s < 0)
    return fail(Code::invalid,
                fmt::format("lease {}: a share or rate is negative", fact.lease.value));
  const WallTime at = std::max(fact.at, lease->second.opened.at);
  lease->second.spans[at.ns] = {at,         fact.node,          fact.price_class,
                                fact.milli, fact.charged_milli, fact.rate};
  return {};
}

Status Books::add(const LeaseBegan& fact) {
  const auto lease = leases_.find(fact.lease);
  if (lease == leases_.end())
    return fail(Code::not_found, fmt::format("unknown lease {}", fact.lease.value));
  auto& spans = lease->second.spans;
  const WallTime at = std::max(fact.at, lease->second.opened.at);
  const auto after = spans.upper_bound(at.ns);
  if (after == spans.begin())
    return fail(Code::invalid, fmt::format("lease {} holds nothing yet", fact.lease.value));
  auto held = std::prev(after)->second;
  spans.erase(spans.begin(), after);
  held.from = lease->second.opened.at;
  held.charged_milli = 0;
  spans[held.from.ns] = held;
  held.from = at;
  held.charged_milli = fact.charged_milli;
  spans[at.ns] = held;
  return {};
}

Status Books::add(const LeaseClosed& fact) {
  const auto lease = leases_.find(fact.lease);
  if (lease == leases_.end())
    return fail(Code::not_found, fmt::format("unknown lease {}", fact.lease.value));
  lease->second.closed = std::max(fact.at, lease->second.opened.at);
  close_extras(lease->second);
  return {};
}

Status Books::add(const LeaseMarked& fact) {
  const auto lease = leases_.find(fact.lease);
  if (lease == leases_.end())
    return fail(Code::not_found, fmt::format("unknown lease {}", fact.lease.value));
  if (fact.active.ns < 0 || fact.energy_mj < 0)
    return fail(Code::invalid, fmt::format("lease {}: a mark is negative", fact.lease.value));
  lease->second.marks[fact.at.ns] = {fact.active.ns, fact.energy_mj};
  return {};
}

// Between marks active time grows linearly; it never grows faster than time itself and never
// shrinks, whatever the marks say.
std::int64_t Books::active_ns_until(const LeaseBook& lease, std::int64_t at_ns) {
  std::int64_t t0 = lease.opened.at.ns, a0 = 0;
  if (at_ns <= t0)
    return 0;
  for (const auto& [t1, mark] : lease.marks) {
    if (t1 <= t0)
      continue;
    const std::int64_t a1 = std::clamp(mark.first, a0, a0 + (t1 - t0));
    if (at_ns < t1)
      return a0 +
             static_cast<std::int64_t>(static_cast<__int128>(a1 - a0) * (at_ns - t0) / (t1 - t0));
    t0 = t1;
    a0 = a1;
  }
  return a0 + (at_ns - t0);
}

NanoUsd Books::fleet_until(const NodeBook& node, WallTime until) const {
  NanoUsd sum;
  for_pieces(node.spans, until, [&](const NodeSpan& span, std::int64_t from, std::int64_t to) {
    sum += piece(span.rate, to - from, 1, 1);
  });
  for (auto extra = node.extras.begin(); extra != node.extras.end() && extra->first < until.ns;
       ++extra)
    sum += extra->second;
  return sum;
}

Books::Amounts Books::amounts_until(const LeaseBook& lease,
                                    WallTime until,
                                    std::map<NodeId, NanoUsd>* on) const {
  if (lease.closed)
    until = std::min(until, *lease.closed);
  Amounts sum;
  sum.active = sum.charge = sum.egress = bought_until(lease, until, on).amount;
  for_pieces(lease.spans, until, [&](const LeaseSpan& span, std::int64_t from, std::int64_t to) {
    sum.charge += piece(span.rate, to - from, span.charged_milli, 1000);
    const auto node = nodes_.find(span.node);
    if (node == nodes_.end() || span.milli == 0)
      return;
    for_pieces(node->second.spans, {to},
               [&](const NodeSpan& priced, std::int64_t node_from, std::int64_t node_to) {
                 const std::int64_t begin = std::max(from, node_from);
                 if (node_to <= begin)
                   return;
                 const NanoUsd held =
                     piece(priced.rate, node_to - begin, span.milli, priced.capacity_milli);
                 const NanoUsd active = piece(
                     priced.rate, active_ns_until(lease, node_to) - active_ns_until(lease, begin),
                     span.milli, priced.capacity_milli);
                 sum.active += active;
                 sum.idle += held - active;
                 if (on)
                   (*on)[span.node] += held;
               });
  });
  return sum;
}

void Books::post_leases(WallTime until, bool correction, std::vector<Entry>& out) {
  for (auto& [id, lease] : leases_) {
    std::map<NodeId, NanoUsd> on;
    const Amounts now = amounts_until(lease, until, &on);
    const WallTime end = lease.closed ? std::min(*lease.closed, until) : until;
    const LeaseSpan& span =
        std::prev(lease.spans.upper_bound(std::max(end.ns, lease.opened.at.ns)))->second;
    const auto post = [&](EntryKind kind, NanoUsd amount) {
      if (amount.value == 0)
        return;
      out.push_back({next_entry_++, kind, span.node, id, lease.opened.job, lease.opened.project,
                     lease.opened.user, lease.opened.gpu_type, span.price_class,
                     correction ? lease.opened.at : std::max(watermark_, lease.opened.at), end,
                     amount, correction});
    };
    post(EntryKind::active, now.active - lease.posted.active);
    post(EntryKind::idle, now.idle - lease.posted.idle);
    post(EntryKind::charge,
         (now.charge - now.egress) - (lease.posted.charge - lease.posted.egress));
    post(EntryKind::egress, now.egress - lease.posted.egress);
    lease.posted = now;
    for (const auto& [node, amount] : lease.posted_on)
      nodes_[node].posted_leases -= amount;
    for (const auto& [node, amount] : on)
      nodes_[node].posted_leases += amount;
    lease.posted_on = std::move(on);
  }
}

void Books::post_nodes(WallTime until, bool correction, std::vector<Entry>& out) {
  for (auto& [id, node] : nodes_) {
    const NanoUsd fleet = fleet_until(node, until);
    const NanoUsd unallocated = fleet - node.posted_leases - node.posted_unallocated;
    if (unallocated.value != 0) {
      Entry entry;
      entry.number = next_entry_++;
      entry.kind = EntryKind::unallocated;
      entry.node = id;
      entry.from = correction ? WallTime{} : watermark_;
      entry.to = until;
      entry.amount = unallocated;
      entry.correction = correction;
      out.push_back(std::move(entry));
    }
    node.posted_unallocated += unallocated;
  }
}

std::vector<Entry> Books::close(WallTime watermark) {
  std::vector<Entry> out;
  if (watermark < watermark_)
    return out;
  // First corrections below the old watermark, then the new period.
  post_leases(watermark_, true, out);
  post_nodes(watermark_, true, out);
  if (watermark == watermark_)
    return out;
  post_leases(watermark, false, out);
  post_nodes(watermark, false, out);
  watermark_ = watermark;
  return out;
}

// Before `before`, only the points where a price or a share changes, and that moment itself, still
// matter. A mark with the interpolated value is put at each, and the other marks are removed: every
// later amount stays the same to the nano-dollar, and a lease of a year needs no more marks than
// one of two days. This is not done at the watermark, because late facts still need the marks below
// it.
void Books::thin_marks(LeaseBook& lease, WallTime before) const {
  if (lease.marks.empty() || lease.marks.begin()->first >= before.ns)
    return;
  std::vector<std::int64_t> borders = {before.ns};
  if (lease.closed)
    borders.push_back(lease.closed->ns);
  for (auto at = lease.spans.begin(); at != lease.spans.end(); ++at) {
    const auto next = std::next(at);
    const std::int64_t to = next == lease.spans.end() ? INT64_MAX : next->first;
    borders.push_back(at->first);
    if (const auto node = nodes_.find(at->second.node); node != nodes_.end())
      for (const auto& [from, span] : node->second.spans)
        if (from > at->first && from < to)
          borders.push_back(from);
  }
  std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> kept(
      lease.marks.lower_bound(before.ns), lease.marks.end());
  const std::int64_t last_mark = lease.marks.rbegin()->first;
  for (const std::int64_t at : borders) {
    // After the last mark, time counts as active until the next mark, so no value may be fixed
    // there.
    if (at > before.ns || at <= lease.opened.at.ns || at > last_mark)
      continue;
    const auto after = lease.marks.upper_bound(at);
    kept.try_emplace(at, active_ns_until(lease, at),
                     after == lease.marks.begin() ? 0 : std::prev(after)->second.second);
  }
  if (last_mark < before.ns)
    kept.insert(*lease.marks.rbegin());
  lease.marks = std::move(kept);
}

NanoUsd Books::charge_between(LeaseId id, WallTime from, WallTime to) const {
  const auto found = leases_.find(id);
  if (found == leases_.end())
    return {};
  const LeaseBook& lease = found->second;
  const auto until = [&](WallTime at) {
    if (lease.closed)
      at = std::min(at, *lease.closed);
    NanoUsd sum = bought_until(lease, at, nullptr).amount;
    for_pieces(lease.spans, at, [&](const LeaseSpan& span, std::int64_t begin, std::int64_t end) {
      sum += piece(span.rate, end - begin, span.charged_milli, 1000);
    });
    return sum;
  };
  return until(std::max(from, to)) - until(from);
}

Rate Books::burn(LeaseId id) const {
  const auto found = leases_.find(id);
  if (found == leases_.end() || found->second.closed || found->second.spans.empty())
    return {};
  const LeaseSpan& span = found->second.spans.rbegin()->second;
  return {static_cast<std::int64_t>(static_cast<__int128>(span.rate.nano_usd_per_s) *
                                    span.charged_milli / 1000)};
}

NanoUsd Books::fleet_between(NodeId id, WallTime from, WallTime to) const {
  const auto node = nodes_.find(id);
  if (node == nodes_.end())
    return {};
  return fleet_until(node->second, std::max(from, to)) - fleet_until(node->second, from);
}

NanoUsd Books::time_cost(NodeId id, WallTime until) const {
  const auto node = nodes_.find(id);
  NanoUsd sum;
  if (node != nodes_.end())
    for_pieces(node->second.spans, until,
               [&](const NodeSpan& span, std::int64_t from, std::int64_t to) {
                 sum += piece(span.rate, to - from, 1, 1);
               });
  return sum;
}

WallTime Books::began(NodeId id) const {
  const auto node = nodes_.find(id);
  return node == nodes_.end() || node->second.spans.empty()
             ? WallTime{}
             : node->second.spans.begin()->second.from;
}

Rate Books::node_rate(NodeId id) const {
  const auto node = nodes_.find(id);
  return node == nodes_.end() || node->second.spans.empty()
             ? Rate{}
             : node->second.spans.rbegin()->second.rate;
}

std::vector<LeaseId> Books::open_leases() const {
  std::vector<LeaseId> out;
  for (const auto& [id, lease] : leases_)
    if (!lease.closed)
      out.push_back(id);
  return out;
}

const LeaseOpened* Books::opened(LeaseId id) const {
  const auto found = leases_.find(id);
  return found == leases_.end() ? nullptr : &found->second.opened;
}

WallTime Books::last_change(LeaseId id) const {
  const auto found = leases_.find(id);
  if (found == leases_.end() || found->second.spans.empty())
    return {};
  return {found->second.spans.rbegin()->first};
}

Books::Image Books::image() const {
  Image out{last_seq_, next_entry_, watermark_, kept_from_, {}, {}};
  for (const auto& [id, node] : nodes_) {
    Image::Node n{id, {}, node.posted_leases, node.posted_unallocated, {}};
    for (const auto& [at, amount] : node.extras)
      n.extras.insert(n.extras.end(), {at, amount.value});
    for (const auto& [at, span] : node.spans)
      n.spans.push_back(span);
    out.nodes.push_back(std::move(n));
  }
  for (const auto& [id, lease] : leases_) {
    Image::Lease l;
    l.opened = lease.opened;
    for (const auto& [at, span] : lease.spans)
      l.spans.push_back(span);
    for (const auto& [at, mark] : lease.marks)
      l.marks.insert(l.marks.end(), {at, mark.first, mark.second});
    for (const auto& [at, extra] : lease.extras)
      l.extras.insert(l.extras.end(), {at, static_cast<std::int64_t>(extra.node.value),
                                       extra.amount.value, extra.bytes});
    l.is_closed = lease.closed.has_value();
    l.closed = lease.closed.value_or(WallTime{});
    l.posted = {lease.posted.active.value, lease.posted.idle.value, lease.posted.charge.value};
    l.posted_egress = lease.posted.egress;
    for (const auto& [node, amount] : lease.posted_on)
      l.posted.insert(l.posted.end(), {static_cast<std::int64_t>(node.value), amount.value});
    out.leases.push_back(std::move(l));
  }
  return out;
}

Books Books::restore(const Image& image) {
  Books out;
  out.last_seq_ = image.last_seq;
  out.next_entry_ = image.next_entry;
  out.watermark_ = image.watermark;
  out.kept_from_ = image.kept_from;
  for (const Image::Node& n : image.nodes) {
    NodeBook& node = out.nodes_[n.id];
    for (const NodeSpan& span : n.spans)
      node.spans[span.from.ns] = span;
    for (std::size_t i = 0; i + 1 < n.extras.size(); i += 2)
      node.extras[n.extras[i]] = {n.extras[i + 1]};
    node.posted_leases = n.posted_leases;
    node.posted_unallocated = n.posted_unallocated;
  }
  for (const Image::Lease& l : image.leases) {
    LeaseBook lease;
    lease.opened = l.opened;
    for (const LeaseSpan& span : l.spans)
      lease.spans[span.from.ns] = span;
    for (std::size_t i = 0; i + 2 < l.marks.size(); i += 3)
      lease.marks[l.marks[i]] = {l.marks[i + 1], l.marks[i + 2]};
    if (l.is_closed)
      lease.closed = l.closed;
    for (std::size_t i = 0; i + 3 < l.extras.size(); i += 4)
      lease.extras[l.extras[i]] = {
          NodeId(static_cast<std::uint64_t>(l.extras[i + 1])), {l.extras[i + 2]}, l.extras[i + 3]};
    if (l.posted.size() >= 3)
      lease.posted = {{l.posted[0]}, {l.posted[1]}, {l.posted[2]}, l.posted_egress};
    for (std::size_t i = 3; i + 1 < l.posted.size(); i += 2)
      lease.posted_on[NodeId(static_cast<std::uint64_t>(l.posted[i]))] = {l.posted[i + 1]};
    out.leases_.emplace(l.opened.lease, std::move(lease));
  }
  return out;
}

Totals Books::totals(WallTime from, WallTime to) const {
  Totals sum;
  from = std::max(from, kept_from_);
  to = std::max(to, from);
  for (const auto& [id, node] : nodes_)
    sum.fleet += fleet_until(node, to) - fleet_until(node, from);
  for (const auto& [id, lease] : leases_) {
    if (lease.opened.at >= to || (lease.closed && *lease.closed <= from))
      continue;
    const Amounts a = amounts_until(lease, from, nullptr), b = amounts_until(lease, to, nullptr);
    sum.active += b.active - a.active;
    sum.idle += b.idle - a.idle;
    sum.charge += b.charge - a.charge;
    sum.egress += b.egress - a.egress;
  }
  sum.unallocated = sum.fleet - sum.active - sum.idle;
  return sum;
}

Books::LeaseTotals Books::lease_totals(LeaseId id, WallTime from, WallTime to) const {
  const auto found = leases_.find(id);
  if (found == leases_.end())
    return {};
  const LeaseBook& lease = found->second;
  const WallTime begin = std::max(from, lease.opened.at),
                 end = std::max(begin, lease.closed ? std::min(*lease.closed, to) : to);
  const Amounts a = amounts_until(lease, begin, nullptr), b = amounts_until(lease, end, nullptr);
  LeaseTotals out{
      b.active - a.active,
      b.idle - a.idle,
      b.charge - a.charge,
      end - begin,
      {},
      0,
      b.egress - a.egress,
      bought_until(lease, end, nullptr).bytes - bought_until(lease, begin, nullptr).bytes};
  out.active_time = Duration{active_ns_until(lease, end.ns) - active_ns_until(lease, begin.ns)};
  const auto energy_until = [&](WallTime at) {
    const auto after = lease.marks.upper_bound(at.ns);
    return after == lease.marks.begin() ? std::int64_t{0} : std::prev(after)->second.second;
  };
  out.energy_mj = std::max<std::int64_t>(0, energy_until(end) - energy_until(begin));
  return out;
}

void Books::forget(WallTime before) {
  before = std::min(before, watermark_);
  kept_from_ = std::max(kept_from_, before);
  std::erase_if(leases_, [&](const auto& item) {
    return item.second.closed && *item.second.closed < before;
  });
  for (auto& [id, lease] : leases_)
    thin_marks(lease, before);
  thin_extras(before);
}

WallTime BillingClock::at(WallTime wall, SteadyTime steady, std::string_view boot_id) {
  if (boot_id_ == boot_id && !boot_id_.empty()) {
    if (steady <= steady_)
      return now_;
    now_ = now_ + (steady - steady_);
  } else {
    now_ = std::max(now_, wall);
    boot_id_ = boot_id;
  }
  steady_ = steady;
  return now_;
}

void BillingClock::resume_from(WallTime newest) {
  now_ = std::max(now_, newest);
}

Result<Rate> owned_rate(const OwnedHardware& h) {
  if (h.purchase.value <= 0)
    return fail(Code::invalid, "the purchase price must be above zero",
                "give what the node cost, e.g. --purchase 250000");
  if (h.years_milli < 100 || h.years_milli > 30'000)
    return fail(Code::invalid, "the years of use must be between 0.1 and 30");
  if (h.power_w < 0 || h.power_w > 1'000'000 || h.pue_milli < 1000 || h.pue_milli > 5000)
    return fail(Code::invalid, "power must be 0 to 1,000,000 W and PUE 1 to 5");
  if (h.per_kwh.value < 0 || h.upkeep_per_year.value < 0)
    return fail(Code::invalid, "a price must not be negative");
  if (h.power_w > 0 && h.per_kwh.value == 0)
    return fail(Code::invalid, "power is given without its price", "add --per-kwh 0.15");
  constexpr __int128 year_s = 31'557'600;  // 365.25 days
  const auto rounded = [](__int128 a, __int128 b) {
    return (a + b / 2) / b;
  };
  const __int128 capital =
      rounded(static_cast<__int128>(h.purchase.value) * 1000, year_s * h.years_milli);
  const __int128 power = rounded(static_cast<__int128>(h.power_w) * h.pue_milli * h.per_kwh.value,
                                 static_cast<__int128>(1000) * 1000 * 3600);
  const __int128 upkeep = rounded(h.upkeep_per_year.value, year_s);
  return Rate{static_cast<std::int64_t>(capital + power + upkeep)};
}

Energy energy(std::int64_t energy_mj, double grid_g_per_kwh) {
  const double kwh = static_cast<double>(energy_mj) / 3.6e9;
  return {kwh, kwh * grid_g_per_kwh / 1000};
}

}  // namespace billow::ledger
