// How much a node keeps, how long it waits for what it fetches, and what its jobs may reach:
// options that `join`, `agent` and `up` have in common.
#pragma once

#include "agent/node/node.h"
#include "base/result.h"
#include "client/frame/command.h"

namespace billow::client {

inline constexpr const char* images_max_help =
    "size limit of container images per user (default 100G); the least recently used are deleted "
    "first";
inline constexpr const char* pull_patience_help =
    "give up fetching an image or environment that makes no progress for this long (default 10m)";

inline constexpr const char* allow_metadata_help =
    "let jobs use the cloud's metadata service, which hands out the machine's credentials "
    "(default: they cannot reach it)";

inline constexpr const char* client_cert_help =
    "client certificate (PEM) for a head with --client-ca; read again when it changes (default: "
    "the head issues one)";
inline constexpr const char* client_key_help =
    "key of --client-cert: a file, or the handle of a key in a TPM (handle:0x81…)";

inline constexpr const char* allow_namespaces_help =
    "let jobs of other users create user namespaces, for podman, Apptainer and browsers in jobs "
    "(default: they cannot)";

// Settings that are neither given nor set in the environment (BILLOW_IMAGES_MAX,
// BILLOW_PULL_PATIENCE, BILLOW_ALLOW_METADATA, BILLOW_ALLOW_NAMESPACES) stay as they are.
Status read_kept_on_node(const Parsed& parsed, agent::NodeOptions& options);
// For this machine's agent, which the head starts.
Status pass_kept_on_node(const Parsed& parsed);

}  // namespace billow::client
