#include "view/timeline.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "core/ledger/meter.h"
#include "view/names.h"

namespace billow::view {
namespace {

struct Block {
  WallTime from, to;
  std::string kind;  // "run", "idle", "reserved", "drained", "lost"
  JobId job;
  std::string label, name, user, project, reason;
  std::int64_t milli = 0;
  double waste_usd = -1;  // below 0: not known
  std::uint64_t jobs = 1;
};

struct Card {
  const Node* node = nullptr;
  const NodeGpu* gpu = nullptr;
  std::vector<Block> blocks;
};
using Cards = std::map<std::string, std::map<std::int32_t, Card>>;  // by node, by index

double dollars(std::int64_t nano) {
  return static_cast<double>(nano) / 1e9;
}

class Drawing {
 public:
  Drawing(const control::State& state, const TimelineQuestion& question)
      : state_(state), question_(question) {
    for (const auto& [id, node] : state.nodes)
      if (question.node.empty() || question.node == node.offer.name)
        for (const NodeGpu& gpu : node.offer.gpus)
          cards_[node.offer.name][gpu.index] = {&node, &gpu, {}};
  }

  void add_closed(const LeaseRow& lease, const std::map<JobId, std::string>& names) {
    if (lease.open || !lease.job)
      return;
    const auto parts = split(lease.cards, ',');
    Block block{.from = lease.from, .to = lease.to, .kind = "run", .job = lease.job};
    block.waste_usd = dollars(lease.idle.value) / static_cast<double>(parts.size());
    const auto name = names.find(lease.job);
    fill_owner(block, lease.project, lease.user, name == names.end() ? "" : name->second);
    for (const std::string& part : parts) {
      const std::size_t colon = std::min(part.find(':'), part.size());
      const auto index = parse_int(part.substr(0, colon), 0, 1023);
      const auto milli = colon < part.size() ? parse_int(part.substr(colon + 1), 0, 1000)
                                             : Result<std::int64_t>(1000);
      if (index && milli)
        put(lease.node_name, static_cast<std::int32_t>(*index), *milli, block);
    }
  }

  void add_live() {
    for (const auto& [id, task] : state_.tasks) {
      const Job* job = state_.find_job(task.job);
      if (!job || !task.holds_gpus() || task.gpus.empty())
        continue;
      Block block{.from = task.lease_from, .to = question_.now, .kind = "run", .job = task.job};
      if (state_.money.meters.contains(id)) {
        const auto sums =
            state_.money.books.lease_totals(ledger::lease_id(task), task.lease_from, question_.now);
        block.waste_usd = dollars(sums.idle.value) / static_cast<double>(task.gpus.size());
      }
      fill_owner(block, job->project, job->user, job->spec->name);
      if (!block.label.empty())
        block.label = job_label(*job);
      for (const GpuGrant& grant : task.gpus)
        put(node_name(state_, task.node), grant.gpu, grant.share.milli, block);
    }
  }

  void add_reservations() {
    for (const auto& [id, reservation] : state_.reservations)
      for (const ReservedPlace& place : reservation.places) {
        Block block{.from = reservation.from, .to = reservation.until, .kind = "reserved"};
        if (question_.visible(reservation.project)) {
          block.project = project_name(state_, reservation.project);
          block.name = reservation.name;
        }
        for (const GpuGrant& grant : place.gpus)
          put(node_name(state_, place.node), grant.gpu, grant.share.milli, block);
      }
  }

  // Since when cards take no work, and when nothing held them.
  void add_rest() {
    for (auto& [name, cards] : cards_)
      for (auto& [index, card] : cards) {
        std::sort(card.blocks.begin(), card.blocks.end(),
                  [](const Block& a, const Block& b) { return a.from < b.from; });
        const WallTime out = add_out_of_service(card);
        add_idle(card, std::min({question_.to, question_.now, out}));
        std::sort(card.blocks.begin(), card.blocks.end(),
                  [](const Block& a, const Block& b) { return a.from < b.from; });
      }
  }

  // Merges what is too short to be seen until all fit.
  Duration make_coarser() {
    Duration step{};
    for (std::int64_t parts = 4096; count() > timeline_blocks_max && parts >= 2; parts /= 2) {
      step = Duration{(question_.to - question_.from).ns / parts};
      for (auto& [name, cards] : cards_)
        for (auto& [index, card] : cards)
          merge(card.blocks, step);
    }
    return step;
  }

  Json document() const {
    Json nodes = Json::array();
    for (const auto& [name, cards] : cards_) {
      Json gpus = Json::array();
      for (const auto& [index, card] : cards) {
        Json blocks = Json::array();
        for (const Block& block : card.blocks)
          blocks.push(document_of(block));
        gpus.push(Json::object(
            {{"gpu", index}, {"type", card.gpu->type}, {"blocks", std::move(blocks)}}));
      }
      nodes.push(Json::object({{"node", name}, {"gpus", std::move(gpus)}}));
    }
    return nodes;
  }

 private:
  void fill_owner(Block& block, ProjectId project, UserId user, const std::string& name) const {
    if (!question_.visible(project))
      return;
    block.label = fmt::format("{}", block.job.value);
    block.name = name;
    block.user = user_name(state_, user);
    block.project = project_name(state_, project);
  }

  void put(const std::string& node, std::int32_t gpu, std::int64_t milli, Block block) {
    const auto on = cards_.find(node);
    if (on == cards_.end() || !on->second.contains(gpu) || block.to <= question_.from ||
        block.from >= question_.to)
      return;
    const double whole = (block.to - block.from).seconds();
    block.from = std::max(block.from, question_.from);
    block.to = std::min(block.to, question_.to);
    if (block.waste_usd > 0 && whole > 0)
      block.waste_usd *= (block.to - block.from).seconds() / whole;
    block.milli = milli;
    on->second[gpu].blocks.push_back(std::move(block));
  }

  // Returns since when.
  WallTime add_out_of_service(Card& card) const {
    const Node& node = *card.node;
    const WallTime end = std::min(question_.to, question_.now);
    WallTime busy = std::max(question_.from, node.joined_at);
    for (const Block& block : card.blocks)
      if (block.kind == "run")
        busy = std::max(busy, block.to);
    Block out{.from = busy, .to = end, .kind = "drained"};
    const GpuMark* mark = node.mark(card.gpu->index);
    if (!node.reachable) {
      out.kind = "lost";
      out.reason = "the node is unreachable";
      out.from = std::max(question_.from, node.unreachable_since);
    } else if (is_lost(card)) {
      out.kind = "lost";
      out.reason = node.gpu_trouble(*card.gpu);
      if (mark && mark->since)
        out.from = std::max(question_.from, mark->since);
    } else if (mark && !mark->drained.empty()) {
      out.reason = mark->drained;
      out.from = std::max(busy, mark->since);
    } else if (!card.gpu->unhealthy.empty()) {
      out.reason = card.gpu->unhealthy;
    } else if (!node.drained.empty()) {
      out.reason = node.drained;
    } else {
      return WallTime{INT64_MAX};
    }
    if (out.from >= end)
      return WallTime{INT64_MAX};
    const WallTime from = out.from;
    // It is paid for, as in the books. While a job still holds it, the job's block says so.
    out.waste_usd = cost_of(card, std::max(from, busy), end);
    card.blocks.push_back(std::move(out));
    return from;
  }

  bool is_lost(const Card& card) const {
    const auto* beat = question_.readings ? question_.readings(card.node->id) : nullptr;
    if (!beat)
      return false;
    return std::any_of(beat->gpus.begin(), beat->gpus.end(), [&](const auto& reading) {
      return reading.gpu == card.gpu->index && reading.lost;
    });
  }

  // What a card costs in that time: its part of the node.
  double cost_of(const Card& card, WallTime from, WallTime to) const {
    const Rate rate = state_.money.books.node_rate(card.node->id);
    return dollars(rate.nano_usd_per_s) * std::max(0.0, (to - from).seconds()) /
           static_cast<double>(std::max<std::size_t>(1, card.node->offer.gpus.size()));
  }

  void add_idle(Card& card, WallTime end) const {
    std::vector<Block> gaps;
    WallTime at = std::max(question_.from, card.node->joined_at);
    const auto gap = [&](WallTime until) {
      if (until - at < milliseconds(1))
        return;
      Block idle{.from = at, .to = until, .kind = "idle"};
      idle.waste_usd = cost_of(card, at, until);
      gaps.push_back(std::move(idle));
    };
    for (const Block& block : card.blocks) {
      if (block.kind != "run")
        continue;
      gap(std::min(block.from, end));
      at = std::max(at, block.to);
    }
    gap(end);
    card.blocks.insert(card.blocks.end(), gaps.begin(), gaps.end());
  }

  std::size_t count() const {
    std::size_t all = 0;
    for (const auto& [name, cards] : cards_)
      for (const auto& [index, card] : cards)
        all += card.blocks.size();
    return all;
  }

  // Neighbours of one kind, of which one is shorter than a step, become one block.
  static void merge(std::vector<Block>& blocks, Duration step) {
    std::vector<Block> out;
    for (Block& block : blocks) {
      const bool is_short = block.to - block.from < step;
      Block* last = out.empty() ? nullptr : &out.back();
      const bool joins = last && block.from - last->to < step &&
                         (is_short || last->to - last->from < step) &&
                         (block.kind == last->kind || is_short);
      if (!joins) {
        out.push_back(std::move(block));
        continue;
      }
      last->to = std::max(last->to, block.to);
      if (block.waste_usd > 0)
        last->waste_usd = std::max(0.0, last->waste_usd) + block.waste_usd;
      if (block.kind != "run")
        continue;
      last->jobs += last->job == block.job ? 0 : block.jobs;
      if (last->project != block.project)
        last->project.clear();
      if (last->job != block.job)
        last->label = last->name = last->user = "";
    }
    blocks = std::move(out);
  }

  static Json document_of(const Block& block) {
    Json out = Json::object({{"from", block.from.ns / 1'000'000},
                             {"to", block.to.ns / 1'000'000},
                             {"kind", block.kind}});
    const auto text = [&](const char* name, const std::string& value) {
      if (!value.empty())
        out.set(name, value);
    };
    text("job", block.label);
    text("name", block.name);
    text("user", block.user);
    text("project", block.project);
    text("reason", block.reason);
    if (block.milli > 0)
      out.set("milli", block.milli);
    if (block.waste_usd >= 0)
      out.set("waste_usd", block.waste_usd);
    else if (block.kind == "run")
      out.set("waste_usd", Json());
    if (block.jobs > 1)
      out.set("jobs", block.jobs);
    return out;
  }

  const control::State& state_;
  const TimelineQuestion& question_;
  Cards cards_;
};

}  // namespace

Json timeline(const control::State& state,
              const TimelineQuestion& question,
              const std::vector<LeaseRow>& closed,
              const std::map<JobId, std::string>& names,
              bool truncated) {
  Drawing drawing(state, question);
  for (const LeaseRow& lease : closed)
    drawing.add_closed(lease, names);
  drawing.add_live();
  drawing.add_reservations();
  drawing.add_rest();
  const Duration step = drawing.make_coarser();
  return Json::object({{"from_ms", question.from.ns / 1'000'000},
                       {"to_ms", question.to.ns / 1'000'000},
                       {"now_ms", question.now.ns / 1'000'000},
                       {"step_ms", step.ns / 1'000'000},
                       {"truncated", truncated},
                       {"nodes", drawing.document()}});
}

}  // namespace billow::view
