// The GPUs, one row per card or per node.
#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"
#include "client/top/charts.h"
#include "client/top/list.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

struct CardRow {
  const NodeEntry* node = nullptr;
  int card = -1;  // -1: the node as a whole
  const Card& get() const { return node->cards[static_cast<std::size_t>(card)]; }
};

enum CardColumn {
  card_node,
  card_gpu,
  card_type,
  card_use,
  card_bar,
  card_past,
  card_mem,
  card_mem_past,
  card_power,
  card_temp,
  card_share,
  card_holder
};

Colour heat(std::int64_t celsius) {
  return celsius >= 85 ? Colour::red : celsius >= 75 ? Colour::yellow : Colour::none;
}

CellText card_cell(const State& state, const CardRow& row, int column, int width) {
  const NodeEntry& node = *row.node;
  if (column == card_node)
    return {node.name};
  if (row.card < 0)
    return column == card_holder
               ? CellText{node.state == "ready" ? "no GPU" : fmt::format("{}, no GPU", node.state),
                          {Colour::dim}}
               : CellText{column == card_gpu ? "-" : ""};
  const Card& card = row.get();
  switch (static_cast<CardColumn>(column)) {
    case card_node:
      break;
    case card_gpu:
      return {fmt::format("{}", row.card)};
    case card_type:
      return {card.type};
    case card_use:
      return {card.util < 0 ? "-" : fmt::format("{}%", card.util)};
    case card_bar:
      return {card.util < 0 ? "" : bar(static_cast<double>(card.util) / 100, width, state.utf8),
              {Colour::green}};
    case card_past:
      return {sparkline(card.busy.newest(static_cast<std::size_t>(width)), width, 100, state.utf8),
              {Colour::green}};
    case card_mem:
      return {card.mem < 0 ? "-"
                           : fmt::format("{}/{}", gibibytes(card.mem), gibibytes(card.mem_mib))};
    case card_mem_past:
      return {
          sparkline(card.memory.newest(static_cast<std::size_t>(width)), width, 100, state.utf8),
          {Colour::cyan}};
    case card_power:
      return {card.watts < 0 ? "-" : fmt::format("{}W", card.watts)};
    case card_temp:
      return {card.celsius <= 0 ? "-" : fmt::format("{}C", card.celsius), {heat(card.celsius)}};
    case card_share:
      return {card.milli ? fmt::format("{}%", card.milli / 10) : "-"};
    case card_holder: {
      const CardWord word =
          state.fleet.word_of(node, static_cast<std::size_t>(row.card), state.now_ms);
      return {word.text, {word.colour}};
    }
  }
  return {};
}

std::int64_t card_value(const CardRow& row, int sort) {
  if (row.card < 0)
    return -2;
  const Card& card = row.get();
  return sort == 1 ? card.util : sort == 2 ? card.mem : sort == 3 ? card.watts : card.celsius;
}

List card_list(const State& state) {
  List out;
  out.of = "GPU";
  out.sorts = {"node", "use", "memory", "power", "temperature"};
  out.columns = {{"NODE", false, 14, 0, 0, 0}, {"GPU", true},
                 {"TYPE", false, 0, 2},        {"USE", true, 0, 0, 0, 1},
                 {"", false, 6, 8, 10, 1},     {"LAST MINUTES", false, 12, 5, 60},
                 {"MEMORY", true, 0, 4, 0, 2}, {"MEMORY TREND", false, 13, 10, 40},
                 {"POWER", true, 0, 7, 0, 3},  {"TEMP", true, 0, 6, 0, 4},
                 {"ALLOC", true, 0, 9},        {"STATE OR HOLDER", false, 24}};
  const ListState& list = state.list();
  auto rows = std::make_shared<std::vector<CardRow>>();
  for (const auto& [id, node] : state.fleet.nodes) {
    for (int i = node.cards.empty() ? -1 : 0; i < std::ssize(node.cards); ++i) {
      ++out.all;
      const CardRow row{&node, i};
      if (list.filter.empty() || matches(list, {node.name, node.state, i < 0 ? "" : row.get().type,
                                                card_cell(state, row, card_holder, 0).text}))
        rows->push_back(row);
    }
  }
  std::ranges::stable_sort(*rows, {}, [](const CardRow& row) { return row.node->name; });
  if (list.sort > 0)
    std::ranges::stable_sort(*rows, [&](const CardRow& a, const CardRow& b) {
      return card_value(a, list.sort) > card_value(b, list.sort);
    });
  if (list.reverse)
    std::ranges::reverse(*rows);
  for (const CardRow& row : *rows)
    out.rows.push_back(
        {row.card < 0 ? Subject::Kind::node : Subject::Kind::gpu, row.node->name, 0, row.card});
  out.cell = [&state, rows](std::size_t row, std::size_t column, int width) {
    return card_cell(state, (*rows)[row], static_cast<int>(column), width);
  };
  return out;
}

enum NodeColumn {
  node_name,
  node_state,
  node_gpus,
  node_free,
  node_use,
  node_cards,
  node_past,
  node_cpu,
  node_mem,
  node_jobs,
  node_remark
};

std::string kinds_of(const NodeEntry& node) {
  std::map<std::string, int> kinds;
  for (const Card& card : node.cards)
    ++kinds[card.type];
  std::string out;
  for (const auto& [type, count] : kinds)
    out += fmt::format("{}{}×{}", out.empty() ? "" : ", ", count, type);
  return out.empty() ? "-" : out;
}

// One character per card: how busy it is, or what is wrong.
std::string cards_in_a_row(const State& state, const NodeEntry& node) {
  std::string out;
  for (std::size_t i = 0; i < node.cards.size(); ++i) {
    const double now = static_cast<double>(node.cards[i].util);
    switch (state.fleet.word_of(node, i, state.now_ms).state) {
      case CardState::free:
        out += state.utf8 ? "·" : ".";
        break;
      case CardState::used:
      case CardState::idle:
        out += now < 0 ? "?" : sparkline(std::span(&now, 1), 1, 100, state.utf8);
        break;
      case CardState::reserved:
        out += "r";
        break;
      case CardState::drained:
        out += "d";
        break;
      case CardState::sick:
        out += "x";
        break;
      case CardState::lost:
        out += "?";
        break;
    }
  }
  return out;
}

std::int64_t free_of(const State& state, const NodeEntry& node) {
  std::int64_t free = 0;
  for (std::size_t i = 0; i < node.cards.size(); ++i) {
    const CardState word = state.fleet.word_of(node, i, state.now_ms).state;
    if (word == CardState::free || word == CardState::used || word == CardState::idle)
      free += std::clamp<std::int64_t>(1000 - node.cards[i].milli, 0, 1000);
  }
  return free;
}

double use_of(const NodeEntry& node) {
  double sum = 0, known = 0;
  for (const Card& card : node.cards)
    if (card.util >= 0) {
      sum += static_cast<double>(card.util);
      ++known;
    }
  return known > 0 ? sum / known : -1;
}

std::string remark_of(const State& state, const NodeEntry& node) {
  if (!node.reason.empty())
    return node.reason;
  for (std::size_t i = 0; i < node.cards.size(); ++i)
    if (!node.cards[i].trouble.empty())
      return fmt::format("GPU {}: {}", i, state.fleet.word_of(node, i, state.now_ms).text);
  return {};
}

int jobs_on(const State& state, const NodeEntry& node) {
  int count = 0;
  for (const auto& [id, job] : state.fleet.jobs)
    count += std::ranges::any_of(job.where, [&](const auto& w) { return w.first == node.id; });
  return count;
}

CellText node_cell(const State& state, const NodeEntry& node, int column, int width) {
  switch (static_cast<NodeColumn>(column)) {
    case node_name:
      return {node.name};
    case node_state:
      return {node.state == "unreachable" ? "lost" : node.state, {colour_of_state(node.state)}};
    case node_gpus:
      return {kinds_of(node)};
    case node_free: {
      const std::string free = gpus_text(free_of(state, node));
      return {free == "-" ? "0" : free};
    }
    case node_use:
      return {percent(use_of(node))};
    case node_cards:
      return {cards_in_a_row(state, node), {Colour::green}};
    case node_past:
      return {sparkline(node.busy.newest(static_cast<std::size_t>(width)), width, 100, state.utf8),
              {Colour::green}};
    case node_cpu:
      return {node.cpu_used < 0 || node.cpu_milli <= 0
                  ? "-"
                  : fmt::format("{}%",
                                std::min<std::int64_t>(100, node.cpu_used * 100 / node.cpu_milli))};
    case node_mem:
      return {node.mem_used < 0
                  ? "-"
                  : fmt::format("{}/{}", gibibytes(node.mem_used), gibibytes(node.mem_mib))};
    case node_jobs:
      return {fmt::format("{}", jobs_on(state, node))};
    case node_remark:
      return {remark_of(state, node), {Colour::dim}};
  }
  return {};
}

List node_list(const State& state) {
  List out;
  out.of = "node";
  out.sorts = {"name", "use", "free GPUs"};
  out.columns = {{"NODE", false, 8, 0, 0, 0},
                 {"STATE"},
                 {"GPUS", false, 8, 2},
                 {"FREE", true, 0, 0, 0, 2},
                 {"USE", true, 0, 0, 0, 1},
                 {"EACH", false, 8, 3},
                 {"LAST MINUTES", false, 12, 4, 60},
                 {"CPU", true, 0, 5},
                 {"MEMORY", true, 0, 6},
                 {"JOBS", true, 0, 7},
                 {"REMARK", false, 8, 1}};
  const ListState& list = state.list();
  auto rows = std::make_shared<std::vector<const NodeEntry*>>();
  for (const auto& [id, node] : state.fleet.nodes) {
    ++out.all;
    if (matches(list, {node.name, node.state, kinds_of(node), node.reason}))
      rows->push_back(&node);
  }
  if (list.sort == 1)
    std::ranges::stable_sort(*rows, std::greater{}, [](const NodeEntry* n) { return use_of(*n); });
  else if (list.sort == 2)
    std::ranges::stable_sort(*rows, std::greater{},
                             [&](const NodeEntry* n) { return free_of(state, *n); });
  else
    std::ranges::stable_sort(*rows, {}, [](const NodeEntry* n) { return n->name; });
  if (list.reverse)
    std::ranges::reverse(*rows);
  for (const NodeEntry* node : *rows)
    out.rows.push_back({Subject::Kind::node, node->name, 0, -1});
  out.cell = [&state, rows](std::size_t row, std::size_t column, int width) {
    return node_cell(state, *(*rows)[row], static_cast<int>(column), width);
  };
  return out;
}

}  // namespace

List gpu_list(const State& state) {
  List out = state.folded() ? node_list(state) : card_list(state);
  out.nothing = !state.fleet.complete ? "waiting for the head …"
                : out.all             ? "no row matches the filter; Esc clears it"
                                      : "no node has joined yet; `billow join` adds one";
  return out;
}

}  // namespace billow::client::top
