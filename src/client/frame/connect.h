// Where the head is and how to prove who asks, found without asking anybody: options, environment,
// the files of the local data directory. Opens no connection; the first request finds out whether a
// head answers.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "net/address.h"
#include "net/tls.h"

namespace billow::client {

struct ConnectOptions {
  std::string head;  // --head
  std::string data;  // --data
  bool may_start =
      false;  // begin a head in the background where none is configured and none answers
  bool needs_gpus = false;  // a new head is of no use on a machine without GPUs
};

struct HeadAddress {
  net::Endpoint endpoint;
  net::TlsClientOptions tls;
  std::string token;
  std::string data_dir;
  bool configured = false;  // somebody named a head: it is not ours to start
  bool by_account = false;  // the head of the whole machine, which knows this user by the account
};

std::string home_directory();
// $XDG_CONFIG_HOME/billow, or ~/.config/billow.
std::string config_directory();
// $XDG_CACHE_HOME/billow, or ~/.cache/billow; empty without a home.
std::string cache_directory();
// --data, BILLOW_DATA, $XDG_DATA_HOME/billow, ~/.local/share/billow; for root without XDG_DATA_HOME
// /var/lib/billow.
std::string data_directory(const std::string& option);

// A named head's token is BILLOW_TOKEN, or stands in the context file
// ($XDG_CONFIG_HOME/billow/contexts.json:
// {"current": URL, "https://head:7070": {"token": "…", "fingerprint": "…", "ca": "/path"}}). The
// local head's is in its data directory. Without a name, the head last logged in to is meant,
// unless BILLOW_DATA or --data points to a local one; then one of this user on this machine,
// wherever its data lies (local_heads.h); then the one of the whole machine.
Result<HeadAddress> find_head(const ConnectOptions& options);

// The token that the machine's head gave this account before; empty: none that still works.
std::string kept_account_token();
void keep_account_token(const Json& answer);

// The context file holds tokens: it is refused when others can read it.
std::string contexts_path();
Result<Json> read_contexts();
Status write_contexts(const Json& contexts);

// What ends the head of this data directory: `billow down`, with --data where it is not the one
// that is meant without.
std::string down_command(const std::string& data_dir);
// Whether a head has run on this data directory before. Its nodes and pools may have GPUs that this
// machine has not.
bool head_ran_in(const std::string& data_dir);
// `billow up --background` for this data directory; returns when it is ready. Says so on stderr.
Status start_head(const std::string& data_dir);

// Where the users of a machine find its head (`billow up --system`).
std::string system_socket_path();

}  // namespace billow::client
