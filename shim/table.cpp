/* Allocations by address: a sorted array, so that an address inside an allocation is found as fast
 * as its start. */
#include <stdlib.h>
#include <string.h>

#include "shim/internal.h"

namespace shim {

size_t RegionTable::lower(uint64_t base) const {
  size_t low = 0, high = count_;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (items_[middle].base < base)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool RegionTable::insert(const Region& region) {
  if (count_ == capacity_) {
    const size_t wanted = capacity_ ? capacity_ * 2 : 256;
    void* grown = realloc(items_, wanted * sizeof(Region));
    if (!grown)
      return false;
    items_ = static_cast<Region*>(grown);
    capacity_ = wanted;
  }
  const size_t at = lower(region.base);
  memmove(items_ + at + 1, items_ + at, (count_ - at) * sizeof(Region));
  items_[at] = region;
  count_++;
  return true;
}

Region* RegionTable::find(uint64_t base) {
  const size_t at = lower(base);
  return at < count_ && items_[at].base == base ? &items_[at] : nullptr;
}

Region* RegionTable::containing(uint64_t address) {
  const size_t after = lower(address + 1);
  if (after == 0)
    return nullptr;
  Region& r = items_[after - 1];
  return address - r.base < r.bytes ? &r : nullptr;
}

bool RegionTable::remove(uint64_t base, Region* out) {
  Region* r = find(base);
  if (!r)
    return false;
  if (out)
    *out = *r;
  const size_t at = static_cast<size_t>(r - items_);
  memmove(items_ + at, items_ + at + 1, (count_ - at - 1) * sizeof(Region));
  count_--;
  return true;
}

void RegionTable::forget() {
  items_ = nullptr;
  count_ = capacity_ = 0;
}

}  // namespace shim
