#include "gpu/sim/mig_table.h"

#include <fmt/format.h>

namespace billow {
namespace {

struct Shape {
  unsigned number, id, compute, memory, instances_max;
  const char* suffix;
  std::vector<unsigned> starts;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> table = {
      {0x0, 19, 1, 1, 7, "", {0, 1, 2, 3, 4, 5, 6}},
      {0x7, 20, 1, 1, 1, "+me", {0, 1, 2, 3, 4, 5, 6}},
      {0x9, 15, 1, 2, 4, "", {0, 2, 4, 6}},
      {0x1, 14, 2, 2, 3, "", {0, 2, 4}},
      {0x2, 9, 3, 4, 2, "", {0, 4}},
      {0x3, 5, 4, 4, 1, "", {0}},
      {0x4, 0, 7, 8, 1, "", {0}},
  };
  return table;
}

// Gigabytes in the names of an eighth, a quarter, a half and the whole card: marketing figures, not
// visible memory.
struct Names {
  int eighth, quarter, half, whole;
};
Names names_of(const std::string& type) {
  if (type == "A100-40")
    return {5, 10, 20, 40};
  if (type == "H200")
    return {18, 35, 71, 141};
  if (type == "B200")
    return {23, 45, 90, 180};
  if (type == "GB200")
    return {24, 47, 93, 186};
  if (type == "B300")
    return {34, 67, 135, 269};
  return {10, 20, 40, 80};
}

// Visible memory of an instance. A slice of a partitioned card has a little less than its fraction
// of the whole; the figures of the H200 are measured (driver 580), the others are assumed
// proportional.
long long memory_of(const GpuTypeFacts& facts, unsigned slices) {
  if (std::string_view(facts.type) == "H200")
    return slices == 1 ? 16'384 : slices == 2 ? 33'280 : slices == 4 ? 71'424 : 143'360;
  return facts.memory_mib * slices / 8;
}

}  // namespace

std::vector<SimMigProfile> sim_mig_profiles(const GpuTypeFacts& facts) {
  std::vector<SimMigProfile> profiles;
  if (!facts.mig)
    return profiles;
  const Names names = names_of(facts.type);
  for (const Shape& shape : shapes()) {
    const int gb = shape.memory == 1   ? names.eighth
                   : shape.memory == 2 ? names.quarter
                   : shape.memory == 4 ? names.half
                                       : names.whole;
    profiles.push_back({shape.number, shape.id,
                        fmt::format("{}g.{}gb{}", shape.compute, gb, shape.suffix), shape.compute,
                        shape.memory, shape.instances_max, memory_of(facts, shape.memory),
                        shape.starts});
  }
  return profiles;
}

}  // namespace billow
