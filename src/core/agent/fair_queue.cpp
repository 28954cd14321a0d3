#include "core/agent/fair_queue.h"

#include <fmt/format.h>

#include <algorithm>

namespace billow::agent {
namespace {

constexpr std::size_t here_max =
    4096;  // beyond it all are forgotten, and each is fetched by one task at a time again

}  // namespace

Status FairQueue::add(Item item) {
  User& user = users_[item.user];
  if (user.waiting.size() >= options_.waiting_max)
    return fail(
        Code::exhausted,
        fmt::format(
            "{} tasks of this user already wait for their image or environment on this node",
            user.waiting.size()),
        "try again when some of them have started");
  user.waiting.push_back(std::move(item));
  return {};
}

std::optional<FairQueue::Item> FairQueue::next() {
  if (running_ >= options_.running_max)
    return std::nullopt;
  User* chosen = nullptr;
  std::deque<Item>::iterator which;
  for (auto& [id, user] : users_) {
    if (user.waiting.empty() || user.running >= options_.per_user_max)
      continue;
    if (chosen &&
        std::pair(chosen->running, chosen->served) <= std::pair(user.running, user.served))
      continue;
    const auto ready =
        std::find_if(user.waiting.begin(), user.waiting.end(), [&](const Item& item) {
          const Key key{item.user, item.what};
          return !bringing_.contains(key) || here_.contains(key);
        });
    if (ready == user.waiting.end())
      continue;
    chosen = &user;
    which = ready;
  }
  if (!chosen)
    return std::nullopt;
  Item item = std::move(*which);
  chosen->waiting.erase(which);
  ++chosen->running;
  ++running_;
  chosen->served = ++turn_;
  ++bringing_[{item.user, item.what}];
  return item;
}

void FairQueue::ended(const Item& item, bool here) {
  const Key key{item.user, item.what};
  if (const auto found = bringing_.find(key); found != bringing_.end() && --found->second == 0)
    bringing_.erase(found);
  if (here_.size() >= here_max)
    here_.clear();
  if (here)
    here_.insert(key);
  else
    here_.erase(key);
  --running_;
  const auto user = users_.find(item.user);
  if (--user->second.running == 0 && user->second.waiting.empty())
    users_.erase(user);
}

void FairQueue::remove(TaskId task) {
  for (auto& [id, user] : users_)
    std::erase_if(user.waiting, [&](const Item& item) { return item.task == task; });
  std::erase_if(users_, [](const auto& one) {
    return one.second.running == 0 && one.second.waiting.empty();
  });
}

}  // namespace billow::agent
