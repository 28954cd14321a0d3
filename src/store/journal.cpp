#include "store/journal.h"

namespace billow {

const char* store_health_name(StoreHealth health) {
  switch (health) {
    case StoreHealth::ok:
      return "ok";
    case StoreHealth::disk_low:
      return "disk_low";
    case StoreHealth::fatal:
      return "fatal";
  }
  return "?";
}

}  // namespace billow
