// A pool whose machines end at a time that its provider may put off is also one of these.
#pragma once

#include "base/result.h"
#include "core/model/pool.h"

namespace billow::pool {

class Extends {
 public:
  virtual ~Extends() = default;
  // Whether the administrator has asked for it.
  virtual bool extends() const = 0;
  // Makes the machine end later, once: repeated, it changes nothing more.
  virtual Status extend(const MachineSighting& machine) = 0;
};

}  // namespace billow::pool
