#include "core/control/believed.h"

#include <algorithm>
#include <set>

#include "base/limits.h"
#include "base/text.h"

namespace billow::control {
namespace {

constexpr std::int32_t degrees_max = 200;
constexpr std::int64_t power_mw_max = 100'000'000;

constexpr std::size_t path_bytes_max = 4096;

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

void keep_words(std::string& text) {
  text = kept_words(text);
}

void keep_possible(wire::agent_v1::GpuReading& r, const NodeGpu& card) {
  r.util_pct = std::clamp(r.util_pct, -1, 100);
  r.mem_util_pct = std::clamp(r.mem_util_pct, -1, 100);
  r.sm_active_permille = std::clamp(r.sm_active_permille, -1, 1000);
  r.mem_used_mib =
      std::clamp<std::int64_t>(r.mem_used_mib, 0, std::max<std::int64_t>(card.mem_mib, 0));
  r.power_mw = std::clamp<std::int64_t>(r.power_mw, 0, power_mw_max);
  r.temperature_c = std::clamp(r.temperature_c, -degrees_max, degrees_max);
  r.score = std::clamp(r.score, 0, 100);
  keep_words(r.unhealthy);
  keep_words(r.fault);
}

}  // namespace

std::string kept_words(std::string_view text) {
  std::string out = repaired_utf8(utf8_prefix(text, limits::words_bytes_max));
  std::replace_if(out.begin(), out.end(), is_control, ' ');
  return out;
}

void keep_believed(TaskStatus& status) {
  for (std::string* text : {&status.exit.message, &status.order_error, &status.unsuspendable,
                            &status.waits_for, &status.left_behind})
    keep_words(*text);
  const std::string& path = status.checkpoint.path;
  if (path.size() > path_bytes_max || !valid_utf8(path) ||
      std::any_of(path.begin(), path.end(), is_control))
    status.checkpoint = {};
}

std::size_t keep_believed(const State& state, NodeId id, wire::agent_v1::Heartbeat& beat) {
  const std::size_t said = beat.gpus.size() + beat.tasks.size();
  const auto node = state.nodes.find(id);
  if (node == state.nodes.end()) {
    beat = {};
    return said;
  }
  const std::vector<NodeGpu>& cards = node->second.offer.gpus;
  std::set<std::int32_t> seen;
  std::erase_if(beat.gpus, [&](const auto& r) {
    return r.gpu < 0 || static_cast<std::size_t>(r.gpu) >= cards.size() ||
           !seen.insert(r.gpu).second;
  });
  for (auto& r : beat.gpus)
    keep_possible(r, cards[static_cast<std::size_t>(r.gpu)]);
  std::set<TaskId> told;
  std::erase_if(beat.tasks, [&](const auto& r) {
    const Task* task = state.find_task(r.task);
    return !task || task->node != id || task->state == TaskState::ended ||
           !told.insert(r.task).second;
  });
  for (auto& r : beat.tasks) {
    keep_words(r.idle_text);
    keep_words(r.asleep_text);
  }
  return said - beat.gpus.size() - beat.tasks.size();
}

}  // namespace billow::control
