// Labels that agents set themselves and the head understands.
#pragma once

namespace billow::wire {

// "none": the node cannot limit the memory of tasks, because it may not write control groups.
inline constexpr char memory_limits_label[] = "memory-limits";

}  // namespace billow::wire
