// Notices to users: who gets one because of an event, and the lists of those that wait to be
// sent. All of it is pure and in the journal, so a notice that was queued is sent after a restart
// too; the head only delivers (head/notices).
//
// A person gets notices about the own jobs, and about budgets that the person may see. An array
// gets one notice, when its last element has ended; replicas of endpoints get none.
#pragma once

#include "core/control/state.h"

namespace billow::control {

void add_personal_notices(const State& state,
                          const EventBody& event,
                          std::vector<EventBody>& events);
// The target, and the secret that belongs to it.
void remove_target(const State& state, std::uint64_t target, std::vector<EventBody>& events);
// The same for a webhook of the installation, and the keys it was given later.
void remove_webhook(const State& state, std::uint64_t webhook, std::vector<EventBody>& events);
bool may_see_budget(const State& state, UserId user, const BudgetKey& key);

NoticeImage image_of(const NoticeBook& book);
NoticeBook restore_notices(NoticeImage image);

}  // namespace billow::control
