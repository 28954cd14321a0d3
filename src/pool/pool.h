// Where machines come from. An implementation speaks to one engine; all it keeps is how. The state
// (control) says which machines there should be; `reconcile` and the shell around it (head/pools)
// make the engine agree, over crashes on either side, because every machine has a name that was
// written down before the engine heard of it.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model/pool.h"

namespace billow::pool {

// What a new machine must know to become nodes of this head.
struct Order {
  Machine machine;
  std::string head_url;  // "https://10.0.0.1:7070"
  std::string
      token;  // its credential, with the fingerprint of the head's authority behind a dot; secret
};

struct Options {
  std::string installation;  // tells this Billow's machines from another's on the same engine
  std::string work_dir;      // for scripts on their way to the engine; mode 0700
  std::string billow;  // the path of the program, where the engine's machines share our file system
};

class Pool {
 public:
  virtual ~Pool() = default;
  // Asks for a machine. Code::unavailable: the engine did not answer, ask again later; any other
  // error: it said no.
  virtual Status want(const Order& order) = 0;
  // Every machine under our name, in one look, those waiting to begin included.
  virtual Result<std::vector<MachineSighting>> nodes() = 0;
  // Gives one back; not an error where it is gone.
  virtual Status release(const MachineSighting& machine) = 0;
  // Releases what is listed and was never asked for. Returns their names.
  std::vector<std::string> reconcile(const std::vector<MachineSighting>& listed,
                                     const std::set<std::string>& known);
};

Result<std::unique_ptr<Pool>> make_pool(const billow::Pool& settings, const Options& options);

// Whether a machine of this name could be one of the pool's: "fast-12" of pool "fast".
bool named_after(const std::string& machine, const std::string& pool);

}  // namespace billow::pool
