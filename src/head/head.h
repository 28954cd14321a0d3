// The running head out of its parts: store, engine, agents, API, and this machine's agent as a
// child process over the same protocol a remote one uses.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace billow::head {

struct HeadOptions {
  std::string data_dir;
  std::string pointer;  // a file outside the data directory that says where this head is while it
                        // runs; empty: none
  std::vector<std::string> listen = {"127.0.0.1:7070"};
  std::string sim;  // "8xH100": this machine's agent simulates its GPUs
  std::string node_name;
  std::vector<std::string> labels;  // of this machine as a node
  bool local_agent = true;
  bool tls = false;               // also where only this machine can connect
  bool plain_http = false;        // no TLS whatever the address: something in front of us does it
  std::string tls_cert, tls_key;  // given; else the head is its own authority
  std::vector<std::string> tls_names;
  std::string files_dir;   // what people upload; empty: files/ in the data directory. Heads of one
                           // store share it
  std::string store;       // "postgres://…"; empty: SQLite in the data directory
  bool standby = false;    // wait until the head that leads on that store is gone
  std::string backup_dir;  // scheduled backups go here; empty: none
  Duration backup_every = hours(24);
  std::uint32_t backups_kept = 7;
  std::vector<std::string>
      gateway_listen;  // empty: 127.0.0.1:7071, or another port where it is taken
  std::vector<std::string> webhook_hosts;  // told to the gateway
  bool local_gateway = true;               // started when there is an endpoint
  int ready_fd = -1;  // written to when the head is ready (or why it is not), then closed
  bool listen_any_port_if_taken = false;
  std::string secrets_key;  // file with the key of the installation's secrets; empty: secrets.key
                            // in the data directory
  std::string
      notify_command;  // run for each notice (budgets, idleness, failures, health); empty: none
};

// Runs until a signal or `billow down`. An error says why it could not start.
Status run_head(HeadOptions options);

}  // namespace billow::head
