// Machines from a provider. An implementation speaks to one provider and keeps no state but how to
// do that. The core decides which machines should exist; the head (head/pools) makes the provider
// agree. This survives crashes on either side, because every machine has a name that
// was journaled before the provider was asked.
#pragma once

#include <expected>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/model/pool.h"

namespace billow::pool {

// What a new machine must know to join this head.
struct Order {
  Machine machine;
  std::string head_url;   // "https://10.0.0.1:7070"
  std::string token;      // secret: its join token, a dot, the fingerprint of the head's authority
  std::string authority;  // the certificate of the head's authority, PEM; empty: it has none
  std::string program_sha256;  // of the answer to GET /v1/program; empty: billow is installed there
};

struct Options {
  std::string installation;  // distinguishes installations that share a provider
  std::string work_dir;      // for files on their way to the provider; mode 0700
  std::string billow;        // path of the program, for machines that share our file system
  // Secret: the pool's API key; empty: the provider's own chain.
  std::string credential = {};
};

struct Refusal {
  RefusalKind kind = RefusalKind::capacity;
  std::string message;  // the provider's own words, with its error code
};
using Ordered = std::expected<void, Refusal>;
// Code::unavailable and Code::timed_out: no answer; any other error: no capacity.
std::unexpected<Refusal> refusal(const Error& error);

// Whose account the credentials open, and what is wrong with it.
struct Account {
  std::string id;                     // "123456789012"
  std::string identity;               // "arn:aws:iam::123456789012:user/billow"
  std::string source;                 // where the credentials were found: "profile default"
  std::vector<std::string> problems;  // missing rights and quotas, each with its remedy
  std::string remedy;                 // of all problems, if they have one in common
  std::vector<std::string> warnings;  // what may keep orders from being met, each with its remedy
};

// What an administrator asks about a pool's provider.
enum class Question {
  account,     // whose credentials these are, and what is wrong with them
  offers,      // what is rented, and for how much
  strays,      // machines with our names that this head does not know
  end_strays,  // the same, and ends them
};

class Pool {
 public:
  virtual ~Pool() = default;
  // Orders a machine. May be repeated with the same name and must not create a second one.
  virtual Ordered want(const Order& order) = 0;
  // Lists every machine with our names, including those that have not started yet. An error is
  // never an empty list: all machines would be considered gone. A machine that the provider could
  // not keep is listed with MachineSighting::failed, one that has ended with `ended`.
  virtual Result<std::vector<MachineSighting>> nodes() = 0;
  // Ends a machine. Ending one that no longer exists is not an error.
  virtual Status release(const MachineSighting& machine) = 0;
  // Gives a machine one of the pool's cache disks, both as listed. Repeated until the list says
  // that the disk is attached; a machine that has not started yet is no error.
  virtual Status attach(const MachineSighting& machine, const MachineSighting& disk);
  // What the provider rents at present, with prices. None: it has no list.
  virtual Result<std::vector<MachineOffer>> offers();
  virtual Result<Account> account();
  // The head is stopping: calls that are under way may end without an answer. Any thread may ask.
  virtual void stop() {}
  // Where its machines are, for people, as far as known; any thread may ask.
  virtual std::string place() { return {}; }
  // Whether release() can end a machine whose external name no list has shown yet.
  virtual bool ends_by_name() const { return false; }
};

// The listed machines that were never ordered, and still exist. `known` must be newer than the
// list: a machine is known before it is ordered.
std::vector<MachineSighting> strays_in(const std::vector<MachineSighting>& listed,
                                       const std::set<std::string>& known);

// One of a gang's members, as a machine of its own: `external` is "PLACE/ID,ID…" of all of them.
// The order of the ids is the same in every list. A machine without members is itself.
MachineSighting member_of(const MachineSighting& machine, std::size_t number);

// Whether a machine of this name can belong to the pool: "fast-12" to pool "fast".
bool named_after(const std::string& machine, const std::string& pool);
// Whether a disk of this name can be a cache of the pool: "fast-cache-us-east-1a-1".
bool is_cache_of(const std::string& disk, const std::string& pool);

}  // namespace billow::pool
