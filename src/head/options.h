// How a head is started: the options of `billow up`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "store/retention.h"

namespace billow::head {

struct HeadOptions {
  std::string data_dir;
  // A file outside the data directory that says where this head is while it runs; empty: none.
  std::string pointer;
  std::vector<std::string> listen = {"127.0.0.1:7070"};
  bool listen_any_port_if_taken = false;
  // For all users of this machine (`billow up --system`): a socket at which they sign in by their
  // account; empty: none.
  std::string system_socket;
  int ready_fd = -1;  // gets "ok" when the head is ready, or the reason why not; then it is closed

  // This machine as a node.
  bool local_agent = true;
  std::string node_name;
  std::vector<std::string> labels;
  std::string sim;  // "8xH100": the agent simulates its GPUs

  bool tls = false;         // also if only this machine can connect
  bool plain_http = false;  // never TLS: a proxy in front of the head does it
  std::string tls_cert;     // empty: the head is its own authority
  std::string tls_key;
  std::vector<std::string> tls_names;
  // Where machines elsewhere reach this head; empty: at its first address.
  std::string public_url;
  std::string client_ca;  // authority of nodes' certificates; empty: the head issues them
  bool require_client_certificates = false;  // of nodes and gateways over TLS
  Duration certificate_life = hours(24);

  // Uploaded files; empty: files/ in the data directory. Heads of one store share it.
  std::string files_dir;
  std::string logs_bucket;   // "s3://bucket/prefix" that keeps the logs of ended jobs; empty: none
  std::string store;         // "postgres://…"; empty: SQLite in the data directory
  bool standby = false;      // wait until the head that leads on that store is gone
  bool told_to_end = false;  // out: a signal came while it stood by
  std::string backup_dir;    // for scheduled backups; empty: none
  Duration backup_every = hours(24);
  std::uint32_t backups_kept = 7;
  Retention retention;  // of the journal

  bool local_gateway = true;                // started when the first endpoint is deployed
  std::vector<std::string> gateway_listen;  // empty: 127.0.0.1:7071, or any port if it is taken
  std::vector<std::string> webhook_hosts;   // private hosts that webhooks may call
  std::vector<std::string>
      gateway_arguments;                      // more options of the local gateway, as it takes them
  std::string gateway_user;                   // its account, if the head is root
  std::string otlp, trace_sample, sample_to;  // options of the local gateway; empty: not given

  std::string
      secrets_key;  // file with the key of secrets; empty: secrets.key in the data directory
  // The mail server for notices to users: "smtp://USER@HOST:587"; empty: no mail is sent.
  std::string smtp, smtp_password_file, smtp_from, smtp_ca;
  std::string otlp_metrics;  // collector that gets the metrics; empty: none
  Duration otlp_every = seconds(30);
  std::string notify_command;  // run for each notice (budgets, idle jobs, failures); empty: none
};

}  // namespace billow::head
