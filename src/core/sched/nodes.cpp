// The mutators of nodes and the data kept for each: its capacity, the order of its cards, its
// group.
#include <algorithm>
#include <numeric>

#include "core/sched/index.h"
#include "core/sched/key.h"

namespace billow::sched {

std::int32_t usable_on(std::int64_t memory_mib,
                       std::int64_t free_milli,
                       std::int64_t free_mem_mib) {
  std::int64_t milli = std::max<std::int64_t>(free_milli, 0);
  const std::int64_t memory = std::max<std::int64_t>(free_mem_mib, 0) * 1000;
  if (memory < milli * memory_mib)  // only then is it worth a division
    milli = memory / memory_mib;
  return static_cast<std::int32_t>(milli);
}

NodeState* SchedIndex::Impl::find(NodeId id) {
  auto it = slot_of.find(id);
  return it == slot_of.end() ? nullptr : &nodes[it->second];
}

namespace {

// Sorts the cards: identical cards together, among them first those that no suspended job must
// resume on, then the fullest. Few cards change at a time, so the list is nearly sorted.
void rank_cards(NodeState& node) {
  const auto awaited = [&](std::uint8_t card) {
    return node.awaited.empty() ? std::uint8_t{0} : node.awaited[card];
  };
  const auto before = [&](std::uint8_t a, std::uint8_t b) {
    const GpuState &x = node.gpus[a], &y = node.gpus[b];
    if (const auto order =
            std::tie(node.kin[a], x.free_milli, x.free_mem_mib, x.mig_used, x.mig_compute_used) <=>
            std::tie(node.kin[b], y.free_milli, y.free_mem_mib, y.mig_used, y.mig_compute_used);
        order != 0)
      return order < 0;
    return std::pair(awaited(a), a) < std::pair(awaited(b), b);
  };
  for (std::size_t i = 1; i < node.ranked.size(); ++i) {
    const std::uint8_t card = node.ranked[i];
    std::size_t at = i;
    for (; at > 0 && before(card, node.ranked[at - 1]); --at)
      node.ranked[at] = node.ranked[at - 1];
    node.ranked[at] = card;
  }
}

// The key of a shape without its id and name, its cards in the order of their keys; `bare`: also
// without labels, rack and switch.
struct AnonymousKey : KeyWriter {
  const std::vector<std::string>& cards;  // their keys, sorted
  const bool bare;

  AnonymousKey(const NodeShape& shape, const std::vector<std::string>& keys, bool is_bare)
      : cards(keys), bare(is_bare) {
    NodeShape::fields(shape, *this);
  }
  void operator()(const char*, const NodeId&) { number(0); }
  void operator()(const char* name, const std::string& text) {
    if (std::string_view(name) == "name")
      number(0);
    else
      add(text);
  }
  void operator()(const char*, const std::vector<GpuShape>&) {
    number(cards.size());
    for (const std::string& card : cards)
      out += card;
  }
  void operator()(const char*, const Place& place) {
    if (!bare)
      return add(place);
    Place wide = place;
    wide.rack.clear();
    wide.switch_name.clear();
    add(wide);
  }
  void operator()(const char*, const LabelMap& labels) {
    if (bare)
      number(0);
    else
      add(labels);
  }
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const char*, const T& value) { add(value); }
};

// Fills the fields that depend on the node's shape alone.
void describe(SchedIndex::Impl& index, NodeState& node) {
  const std::vector<GpuShape>& gpus = node.shape.gpus;
  std::vector<std::string> keys;
  keys.reserve(gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i)  // the cards of a node are mostly alike
    keys.push_back(i > 0 && gpus[i] == gpus[i - 1] ? keys[i - 1] : key_of(gpus[i]));
  std::vector<std::string> sorted = keys;
  std::ranges::sort(sorted);
  node.kin.clear();
  node.ranked.clear();
  node.type_marks = mark_of_any;
  for (std::size_t i = 0; i < gpus.size(); ++i)
    if (i == 0 || gpus[i].type != gpus[i - 1].type)
      node.type_marks |= mark_of(hash_text(gpus[i].type));
  node.shape_hash = hash_text(AnonymousKey(node.shape, sorted, false).out);
  node.bare_hash = hash_text(AnonymousKey(node.shape, sorted, true).out);
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    node.kin.push_back(
        static_cast<std::uint8_t>(std::ranges::lower_bound(sorted, keys[i]) - sorted.begin()));
    node.ranked.push_back(static_cast<std::uint8_t>(i));
  }
  for (Closeness level : {Closeness::anywhere, Closeness::region, Closeness::zone, Closeness::rack,
                          Closeness::switch_}) {
    const auto l = static_cast<std::size_t>(level);
    const std::string& name = domain_name(node.shape.place, level);
    auto& numbers = index.domains[l];
    node.domain[l] =
        name.empty()
            ? -1
            : numbers.try_emplace(name, static_cast<std::int32_t>(numbers.size())).first->second;
  }
}

}  // namespace

const std::string& domain_name(const Place& place, Closeness level) {
  static const std::string everywhere = "*";
  switch (level) {
    case Closeness::anywhere:
      return everywhere;
    case Closeness::region:
      return place.region;
    case Closeness::zone:
      return place.zone;
    case Closeness::rack:
      return place.rack;
    case Closeness::switch_:
      return place.switch_name;
  }
  return everywhere;
}

void SchedIndex::Impl::node_changed(NodeState& node) {
  rank_cards(node);
  node.free_milli = 0;
  const bool open = node.shape.use == NodeUse::schedulable;
  std::int32_t most_milli = 0, idle_cards = 0;
  std::uint64_t h = mix(node.bare_hash, static_cast<std::uint64_t>(node.free_cpu_milli));
  h = mix(h, static_cast<std::uint64_t>(node.free_mem_mib) << 1 | (node.tasks == 0));
  for (std::uint8_t i : node.ranked) {
    const GpuState& g = node.gpus[i];
    node.free_milli += g.free_milli;
    most_milli = std::max(most_milli, g.free_milli);
    idle_cards += g.free_milli >= whole_gpu_milli;
    h = mix(h, static_cast<std::uint64_t>(g.free_milli) << 40 ^
                   static_cast<std::uint64_t>(g.free_mem_mib));
    if (g.mig_used != 0)
      h = mix(h, static_cast<std::uint64_t>(g.mig_compute_used) << 32 | g.mig_used);
  }
  node.hash = h;
  for (const std::string& name : labels_asked) {
    auto it = node.shape.labels.find(name);
    h = mix(h, it == node.shape.labels.end() ? 0 : hash_text(it->second) | 1);
  }
  if (disk_asked)
    h = mix(h, static_cast<std::uint64_t>(node.free_disk_mib));
  const bool takes_jobs = open && node.free_cpu_milli >= 0 && node.free_mem_mib >= 0;
  const FreeBrief brief(takes_jobs ? node.type_marks : 0, node.free_cpu_milli, node.free_mem_mib,
                        most_milli, idle_cards);
  node.group = groups.move(
      static_cast<Slot>(&node - nodes.data()), node.group, h, node.hash,
      {static_cast<std::uint64_t>(std::reduce(node.awaited.begin(), node.awaited.end(), 0)),
       node.shape_hash, node.shape.id.value},
      brief);
  ++version;
}

SchedIndex::Impl::Capacity SchedIndex::Impl::capacity_of(const PlacementClass& c) {
  if (auto it = capacities.find(c.key); it != capacities.end())
    return it->second;
  Capacity out;
  const auto level = static_cast<std::size_t>(c.constraints.close);
  std::vector<std::int64_t> in(domains[level].size());
  for (const NodeState& n : nodes) {
    if (!n.present || !allowed_place(c, n.shape) || !allowed_by_id(c, n.shape.id) ||
        !fit_empty(c, n))
      continue;
    ++out.nodes;
    if (n.domain[level] >= 0)
      out.together = std::max(out.together, ++in[static_cast<std::size_t>(n.domain[level])]);
  }
  keep_capacity(c.key, out);
  return out;
}

void SchedIndex::Impl::keep_capacity(const std::string& key, Capacity capacity) {
  constexpr std::size_t kept_max = 4096;
  if (capacities.size() >= kept_max)
    capacities.clear();
  capacities.emplace(key, capacity);
}

void SchedIndex::Impl::ask_labels(const LabelMap& labels, bool disk) {
  bool known = disk_asked || !disk;
  disk_asked |= disk;
  for (const auto& [name, value] : labels)
    known &= !labels_asked.insert(name).second;
  if (known)
    return;
  const std::uint64_t before = version;
  for (NodeState& node : nodes) {
    if (node.present)
      node_changed(node);
  }
  version = before;  // nothing happened
}

const PackModel& SchedIndex::Impl::packing() {
  if (model)
    return *model;
  std::map<std::string, std::int64_t> capacity;
  for (const auto& [type, count] : cards)
    capacity.emplace(type, count.healthy);
  const auto& base = !typical.empty() ? typical : learned.typical;
  model = std::make_unique<PackModel>(base.empty() ? typical_prior() : base, capacity);
  ++model_version;
  return *model;
}

void SchedIndex::Impl::look_at(NodeGroup& group) {
  const NodeState& node = nodes[group.members.back()];
  PackNode& pack = group.pack;
  pack.type =
      node.shape.gpus.empty() ? -1 : model->type_of(node.shape.gpus[node.ranked.front()].type);
  pack.gpus = static_cast<int>(std::min<std::size_t>(node.gpus.size(), PackNode::gpus_max));
  pack.cpu_milli = node.free_cpu_milli;
  group.nano_usd_per_s = node.shape.nano_usd_per_s;
  group.cards.clear();
  for (std::size_t i = 0; i < node.ranked.size(); ++i) {
    const std::uint8_t card = node.ranked[i];
    const GpuShape& shape = node.shape.gpus[card];
    const GpuState& state = node.gpus[card];
    const std::int32_t usable = usable_on(shape.memory_mib, state.free_milli, state.free_mem_mib);
    if (i < static_cast<std::size_t>(pack.gpus))
      pack.free[i] = usable;
    const std::uint8_t before = node.ranked[i == 0 ? 0 : i - 1];
    if (i > 0 && node.kin[card] == node.kin[before] && state == node.gpus[before]) {
      ++group.cards.back().count;
      continue;
    }
    const bool same_type = i > 0 && shape.type == node.shape.gpus[before].type;
    group.cards.push_back(
        {.rank = static_cast<std::int32_t>(i),
         .free_milli = state.free_milli,
         .usable_milli = usable,
         .shared = shape.healthy && !shape.mig_enabled,
         .free_mem_mib = state.free_mem_mib,
         .memory_mib = shape.memory_mib,
         .type_hash = same_type ? group.cards.back().type_hash : hash_text(shape.type)});
  }
  model->look(pack, group.view);
  group.seen_by = model_version;
}

namespace {

void set_free(NodeState& node) {
  const NodeShape& shape = node.shape;
  node.free_cpu_milli = shape.cpu_milli;
  node.free_mem_mib = shape.mem_mib;
  node.free_disk_mib = shape.disk_mib;
  node.gpus.assign(shape.gpus.size(), {});
  for (std::size_t i = 0; i < shape.gpus.size(); ++i) {
    if (!shape.gpus[i].healthy)
      continue;
    node.gpus[i].free_milli = whole_gpu_milli;
    node.gpus[i].free_mem_mib = shape.gpus[i].memory_mib;
  }
  node.tasks = 0;
}

// sign −1 takes, +1 gives back.
void shift_use(NodeState& node, const Placement& placement, const JobRequest& request, int sign) {
  FreeCapacity free{std::move(node.gpus), node.free_cpu_milli, node.free_mem_mib, node.tasks,
                    node.free_disk_mib};
  shift_free(free, node.shape, placement, request, sign);
  node.gpus = std::move(free.gpus);
  node.free_cpu_milli = free.cpu_milli;
  node.free_mem_mib = free.mem_mib;
  node.free_disk_mib = free.disk_mib;
  node.tasks = free.tasks;
}

void add_totals(SchedIndex::Impl& index, const NodeShape& shape, int sign) {
  index.total_cpu_milli += sign * shape.cpu_milli;
  index.total_mem_mib += sign * shape.mem_mib;
  for (const GpuShape& g : shape.gpus) {
    index.total_milli += g.healthy ? sign * whole_gpu_milli : 0;
    auto& count = index.cards[g.type];
    count.healthy += g.healthy ? sign : 0;
    if ((count.all += sign) == 0)
      index.cards.erase(g.type);
  }
}

}  // namespace

void shift_free(FreeCapacity& free,
                const NodeShape& shape,
                const Placement& placement,
                const JobRequest& request,
                int sign) {
  free.cpu_milli += sign * placement.cpu_milli;
  free.mem_mib += sign * placement.mem_mib;
  free.disk_mib += sign * placement.disk_mib;
  free.tasks -= sign;
  for (const GpuShare& g : placement.gpus) {
    if (g.gpu < 0 || static_cast<std::size_t>(g.gpu) >= free.gpus.size())
      continue;  // the node came back with fewer cards
    GpuState& state = free.gpus[static_cast<std::size_t>(g.gpu)];
    const GpuShape& card = shape.gpus[static_cast<std::size_t>(g.gpu)];
    if (card.healthy) {
      state.free_milli += sign * g.share.milli;
      state.free_mem_mib += sign * g.share.mem_mib;
    }
    if (g.mig_start < 0)
      continue;
    auto profile = parse_mig_profile(request.resources.mig_profile);
    auto extent = profile ? mig_extent(*profile, card.type, card.memory_mib) : std::nullopt;
    if (!extent)
      continue;
    const std::uint32_t mask = ((1u << extent->slices) - 1u) << g.mig_start;
    state.mig_used = sign < 0 ? state.mig_used | mask : state.mig_used & ~mask;
    state.mig_compute_used -= sign * extent->compute;
  }
}

void SchedIndex::Impl::take(const Placement& placement, const JobRequest& request) {
  NodeState* node = find(placement.node);
  if (!node)
    return;
  shift_use(*node, placement, request, -1);
  node_changed(*node);
}
void SchedIndex::Impl::give(const Placement& placement, const JobRequest& request) {
  NodeState* node = find(placement.node);
  if (!node)
    return;
  shift_use(*node, placement, request, +1);
  node_changed(*node);
}

void SchedIndex::Impl::count_sleepers(NodeState& node) {
  node.awaited.clear();
  for (const auto& [id, s] : sleepers) {
    if (s.node != node.shape.id)
      continue;
    node.awaited.resize(node.shape.gpus.size());
    for (const std::int32_t gpu : s.gpus)
      if (gpu >= 0 && static_cast<std::size_t>(gpu) < node.awaited.size() &&
          node.awaited[static_cast<std::size_t>(gpu)] < UINT8_MAX)
        ++node.awaited[static_cast<std::size_t>(gpu)];
  }
}

void SchedIndex::asleep(const Sleeper& sleeper) {
  awake(sleeper.job);
  impl_->sleepers[sleeper.job] = sleeper;
  if (NodeState* node = impl_->find(sleeper.node)) {
    impl_->count_sleepers(*node);
    impl_->node_changed(*node);
  }
}
void SchedIndex::awake(JobId id) {
  const auto found = impl_->sleepers.find(id);
  if (found == impl_->sleepers.end())
    return;
  const NodeId at = found->second.node;
  impl_->sleepers.erase(found);
  if (NodeState* node = impl_->find(at)) {
    impl_->count_sleepers(*node);
    impl_->node_changed(*node);
  }
}

void SchedIndex::upsert_node(const NodeShape& shape) {
  Impl& x = *impl_;
  NodeState* node = x.find(shape.id);
  if (!node) {
    Slot slot;
    if (x.free_slots.empty()) {
      slot = static_cast<Slot>(x.nodes.size());
      x.nodes.emplace_back();
    } else {
      slot = x.free_slots.back();
      x.free_slots.pop_back();
      x.nodes[slot] = NodeState{};
    }
    x.slot_of[shape.id] = slot;
    node = &x.nodes[slot];
  } else {
    add_totals(x, node->shape, -1);
  }
  const bool other_cards = !node->present || node->shape.gpus.size() != shape.gpus.size();
  // The number of GPUs per type has changed.
  if (!node->present || node->shape.gpus != shape.gpus)
    x.model.reset();
  const NodeUse used = std::exchange(node->shape.use, shape.use);
  const bool other_shape = !node->present || node->shape != shape;
  if (other_shape)
    x.capacities.clear();
  const bool described = node->present && !other_shape && used == shape.use;
  node->present = true;
  if (other_shape)
    node->shape = shape;
  if (!described)
    describe(x, *node);
  if (other_cards)
    x.count_sleepers(*node);
  set_free(*node);
  add_totals(x, shape, +1);
  JobId last;
  for (JobId id : node->jobs) {
    if (std::exchange(last, id) == id)
      continue;
    const RunningJob& job = x.running.at(id);
    for (const Placement& p : job.placements) {
      if (p.node == shape.id)
        shift_use(*node, p, job.request, -1);
    }
  }
  x.node_changed(*node);
}

void SchedIndex::remove_node(NodeId id) {
  Impl& x = *impl_;
  auto it = x.slot_of.find(id);
  if (it == x.slot_of.end())
    return;
  NodeState& node = x.nodes[it->second];
  add_totals(x, node.shape, -1);
  x.model.reset();
  x.capacities.clear();
  if (node.group != no_slot)
    x.groups.leave(it->second, node.group);
  node = NodeState{};
  x.free_slots.push_back(it->second);
  x.slot_of.erase(it);
  ++x.version;
}

}  // namespace billow::sched
