// What a provider file says: how one provider's HTTP API creates, lists and ends machines, what its
// answers mean and what it offers. docs/providers.md describes the format. Plain values: reading
// them is in read_provider.cpp, using them in api.cpp, offers.cpp and rest_pool.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/json.h"
#include "base/result.h"
#include "core/model/offer.h"
#include "net/http/http.h"
#include "pool/rest/json_path.h"

namespace billow::pool::rest {

struct Call {
  net::Method method = net::Method::get;
  std::string path;                                        // a template, below the address
  std::vector<std::pair<std::string, std::string>> query;  // names and templates
  Json body;                                               // of templates; null: none
};

enum class AuthKind {
  bearer,       // Authorization: Bearer KEY
  header,       // HEADER: KEY
  oauth2,       // client credentials, exchanged for a token that is sent as bearer
  hmac_sha256,  // each request is signed
};

struct Auth {
  AuthKind kind = AuthKind::bearer;
  std::string key;     // names of the credentials, which are environment variables or secrets
  std::string secret;  // oauth2 and hmac_sha256 have two
  std::string header;  // header: its name; hmac_sha256: that of the time
  std::string path;    // oauth2: where tokens are made
};

enum class PagingKind { none, cursor, page, next_link };

struct Paging {
  PagingKind kind = PagingKind::none;
  std::string parameter;  // cursor and page: the query parameter
  JsonPath next;          // cursor and next_link: where the next one is in an answer
  std::string size_parameter;
  int size = 0;  // page: a shorter page is the last
  int first = 1;
};

struct ListCall {
  Call call;
  Paging paging;
  JsonPath items;
};

// Holds if the value at `at` is one of `is`, as text.
struct Condition {
  JsonPath at;
  std::vector<std::string> is;
  bool holds(const Json& item) const;
};

// Matches an answer that is an error. An empty member matches everything.
struct AnswerRule {
  int status = 0;
  std::string code;  // equal; "provider/*" matches the beginning
  std::string text;  // contained, any case
  RefusalKind kind = RefusalKind::settings;
};

struct ErrorFields {
  JsonPath code, text;
  std::optional<JsonPath> ok;      // false there: an error in spite of the status
  std::optional<JsonPath> errors;  // not empty there: likewise (GraphQL)
  std::vector<AnswerRule> rules;   // the first that matches decides
};

enum class MachinePhase {
  waiting,  // ordered, starting, or in a state that the file does not know
  here,
  going,  // being ended
  gone,   // listed, but no longer billed
  dead,   // will never serve: it is ended at once
};

struct DeadRule {
  Condition when;
  std::string reason;
};

struct MachineFields {
  JsonPath id, name, state;
  std::optional<JsonPath> region, reason;
  std::map<std::string, MachinePhase> phases;   // by state
  std::map<std::string, std::string> dead_why;  // by state
  std::vector<DeadRule> dead;
};

struct CreateCall {
  Call call;
  std::optional<JsonPath> id;
  std::optional<JsonPath> leftover;  // in an error answer: a machine that exists nevertheless
  // A creation that the provider carries out later, as an operation with its own state.
  struct Operation {
    Call call;
    JsonPath id;     // in the answer to create; becomes {operation}
    JsonPath state;  // in the operation
    std::vector<std::string> failed, done;
    JsonPath code, text;  // why it failed
    Duration wait;
  };
  std::optional<Operation> operation;
};

struct DeleteCall {
  Call call;
  std::vector<AnswerRule> gone;     // the machine does not exist
  std::vector<AnswerRule> not_yet;  // it cannot be ended in its present state
};

// An object beside a machine, with the machine's name: ended after it. One that Billow makes
// itself, such as an uploaded script, is made before the machine.
struct ExtraObject {
  std::string name;  // "script": its id is {script_id}
  std::optional<Call> create;
  JsonPath id;
  ListCall list;
  JsonPath list_id, list_name;
  Call remove;
};

// A value that is found at the provider if the pool does not set it: the first item that fits.
struct Lookup {
  std::string name;
  ListCall list;
  JsonPath value;
  std::optional<JsonPath> where;
  std::string where_is;  // a template
  std::string missing;   // what to do if there is none
};

struct ProviderOption {
  std::string name, help, fallback;
  bool required = false;
};

enum class BootKind { cloud_init, script, container };

struct Boot {
  BootKind kind = BootKind::cloud_init;
  std::size_t bytes_max = 16 << 10;
};

enum class PriceUnit { usd_per_hour, cents_per_hour, usd_per_month };

struct OfferCall {
  ListCall list;
  std::vector<Condition> when;     // all must hold
  std::vector<JsonPath> instance;  // several are joined with "/"
  JsonPath gpu;
  std::optional<JsonPath> gpus, gpus_max, gpu_memory_gb, cpus, memory_gib, memory_mib;
  bool gpu_memory_of_all = false;  // gpu_memory_gb is that of all GPUs together
  std::vector<int> counts;         // with gpus_max: the sizes that are offered
  std::optional<JsonPath> price, spot_price;
  PriceUnit unit = PriceUnit::usd_per_hour;
  bool price_of_gpu = false;
  int hours_per_month = 730;
  bool spot = false;  // everything that this call lists may be reclaimed
  // Places within an item: strings, or objects with a name.
  std::optional<JsonPath> places, place;
  std::optional<Condition> place_when;
  std::map<std::string, std::string> gpu_names;  // the provider's names → Billow's

  struct Availability {  // a second list: which instances can be had where
    ListCall list;
    JsonPath region, instance;  // `instance` may be a list of names ("/availabilities/*")
    std::optional<JsonPath> more_than_zero;
    bool spot = false;
  };
  std::vector<Availability> availability;
  struct Prices {  // a second list: prices by the name of the GPU
    ListCall list;
    JsonPath name, value;
  };
  std::optional<Prices> prices;
};

struct AccountCall {
  Call call;
  std::optional<JsonPath> id, identity;
};

struct Billing {
  Duration step, minimum;  // a machine is billed in steps, at least for the minimum
};

struct Pace {
  double requests_per_s = 5;
  double creates_per_s = 0;  // 0: like any request
};

struct Names {
  bool unique = false;  // the provider refuses a second machine of the same name
  std::size_t bytes_max = 63;
};

// Machines can be ordered with a disk for their jobs.
struct DiskOption {
  std::string option;  // that holds the usual size in GB; empty: disks have a fixed size
  std::int64_t gb_max = 0;
};

struct Provider {
  std::string name, title, address, console;
  Auth auth;
  Pace pace;
  Names names;
  Boot boot;
  std::vector<ProviderOption> options;
  std::vector<Lookup> lookups;  // each may use the values of the earlier ones
  CreateCall create;
  std::vector<ListCall> lists;  // all of them together are the machines
  MachineFields machine;
  DeleteCall remove;
  ErrorFields errors;
  std::vector<ExtraObject> objects;
  std::vector<OfferCall> offers;
  std::optional<AccountCall> account;
  Billing billing;
  DiskOption disk;
  Duration list_lag = minutes(5);  // a new machine may be missing from the list for this long
};

// Reads a provider file and checks it completely: unknown keys, placeholders without a value, JSON
// pointers, states, error rules. The error names every problem as "FILE:LINE: KEY: what is wrong",
// a line each.
Result<Provider> read_provider(std::string_view text, const std::string& shown_as);

// The variable that an option sets: "ssh-key" → "ssh_key".
std::string variable_of(std::string_view option);

}  // namespace billow::pool::rest

namespace billow {
BILLOW_ENUM_NAMES(pool::rest::AuthKind,
                  {pool::rest::AuthKind::bearer, "bearer"},
                  {pool::rest::AuthKind::header, "header"},
                  {pool::rest::AuthKind::oauth2, "oauth2"},
                  {pool::rest::AuthKind::hmac_sha256, "hmac-sha256"});
BILLOW_ENUM_NAMES(pool::rest::PagingKind,
                  {pool::rest::PagingKind::none, "none"},
                  {pool::rest::PagingKind::cursor, "cursor"},
                  {pool::rest::PagingKind::page, "page"},
                  {pool::rest::PagingKind::next_link, "next-link"});
BILLOW_ENUM_NAMES(pool::rest::MachinePhase,
                  {pool::rest::MachinePhase::waiting, "waiting"},
                  {pool::rest::MachinePhase::here, "here"},
                  {pool::rest::MachinePhase::going, "going"},
                  {pool::rest::MachinePhase::gone, "gone"},
                  {pool::rest::MachinePhase::dead, "dead"});
BILLOW_ENUM_NAMES(pool::rest::BootKind,
                  {pool::rest::BootKind::cloud_init, "cloud-init"},
                  {pool::rest::BootKind::script, "script"},
                  {pool::rest::BootKind::container, "container"});
BILLOW_ENUM_NAMES(pool::rest::PriceUnit,
                  {pool::rest::PriceUnit::usd_per_hour, "usd/hour"},
                  {pool::rest::PriceUnit::cents_per_hour, "cents/hour"},
                  {pool::rest::PriceUnit::usd_per_month, "usd/month"});
}  // namespace billow
