// Two machines under one name. A provider may carry an order out twice: the request was repeated
// after a lost answer, or doubled on its way. Both machines are billed and have the same join
// token, and only one of them can become the node. The provider's ids tell them apart: the second
// one is a separate machine in the state ("fast-7~2", `Machine::twin_of`) and in the books.
#pragma once

#include <string>
#include <vector>

#include "core/control/decide/decider.h"

namespace billow::control {

// Names every listed machine after the machine of the state that it is, by the provider's ids. What
// is listed under the name of a machine and is another one gets the name of a twin (and `twin_of`).
// The nodes of one machine may be listed one by one, so machines of several nodes are left as
// listed until all their nodes say on which ids they run. Applied to its own result it changes
// nothing.
std::vector<MachineSighting> tell_apart(const State& state,
                                        const Pool& pool,
                                        const std::vector<MachineSighting>& listed);

// Books the twins that a list shows first, and releases those that are known not to be the node.
// If it is not known which of two machines is the node, no new job starts there, and both end when
// its jobs have ended. `listed` was told apart. True: the pool has a twin that was not booked
// before, and that still exists.
bool settle_twins(const State& state,
                  const Pool& pool,
                  const std::vector<MachineSighting>& listed,
                  const Context& context,
                  Events& events);

// Whether the pool was removed and has no machine left, and its provider is listed for a while
// because a late order may still bring one. Nobody else sees such a pool; it goes when it is
// removed again.
bool is_only_watched(const State& state, const Pool& pool);

// Whether a machine of this name must wait with joining: another one is ended first, so that the
// machine that joins is the one that stays.
bool must_wait_for_twin(const State& state, const std::string& machine);

}  // namespace billow::control
