// The catalogue and the calibration that the program brings along, read once for all tests.
#pragma once

#include "advise/calibration.h"
#include "core/ledger/catalogue.h"

namespace billow::advise {

inline const Catalogue& catalogue() {
  static const Catalogue c = Catalogue::embedded();
  return c;
}
inline const Calibration& calibration() {
  static const Calibration c = Calibration::embedded();
  return c;
}

}  // namespace billow::advise
