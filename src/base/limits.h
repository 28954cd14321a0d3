// All limits of Billow in one place, with the reason where the number is not obvious. Limits of
// asynchronous calls are in call_limits.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace billow::limits {

// HTTP
inline constexpr std::size_t http_header_bytes_max = 32 << 10;
// Enough for an array of 100,000 jobs or a large job file; more is answered with 413.
inline constexpr std::size_t api_body_bytes_max = 8 << 20;
inline constexpr std::size_t http_connections_max = 16384;
// Connections whose caller is not known (yet): of all peers, and of one remote address or local
// user. A full peer loses its own oldest waiting connection.
inline constexpr std::size_t http_strangers_max = 4096;
inline constexpr std::size_t http_connections_per_peer_max = 256;
inline constexpr std::size_t http_connections_per_user_max = 2048;
// Connections that only Unix sockets, and only nodes and gateways, can use.
inline constexpr std::size_t http_unix_reserve = 512;
inline constexpr std::size_t http_nodes_reserve = 4096;
// Bodies received and not yet answered: of all callers, of one user, of one unknown peer.
inline constexpr std::size_t http_body_bytes_in_flight_max = 256 << 20;
inline constexpr std::size_t http_body_bytes_per_user_max = 64 << 20;
inline constexpr std::size_t http_body_bytes_per_peer_max = 256 << 10;
// Of a request without a valid token, such as signing in.
inline constexpr std::size_t http_unknown_body_bytes_max = 4 << 10;
inline constexpr std::uint64_t http_body_bytes_per_s_min = 32 << 10;
// Requests a second on average; a burst may have four times as many.
inline constexpr double http_requests_per_s_per_user_max = 500;
inline constexpr double http_requests_per_s_per_peer_max = 100;
inline constexpr double http_requests_burst_factor = 4;
// A larger JSON body is parsed by a worker, not on the loop.
inline constexpr std::size_t json_on_loop_bytes_max = 64 << 10;
// Per follower. A follower that overflows it is disconnected and resumes by offset.
inline constexpr std::size_t stream_buffer_bytes_max = 1 << 20;
inline constexpr Duration http_idle_timeout = seconds(75);
inline constexpr Duration http_header_timeout = seconds(10);
inline constexpr std::size_t http_headers_max = 100;
// Between two pieces of a request body.
inline constexpr Duration http_body_idle_timeout = seconds(30);
// A reader that takes nothing for this long is disconnected.
inline constexpr Duration http_write_stall_timeout = seconds(60);
// Read ahead of the answer; further bytes wait in the kernel.
inline constexpr std::size_t http_pipelined_bytes_max = 64 << 10;
inline constexpr std::size_t client_body_bytes_max = 64 << 20;
inline constexpr std::size_t client_connections_max = 4096;
inline constexpr std::size_t client_idle_per_endpoint_max = 32;
// Shorter than the server's, so that the client closes first.
inline constexpr Duration client_idle_timeout = seconds(30);
inline constexpr std::size_t ws_message_bytes_max = 4 << 20;
inline constexpr Duration ws_ping_interval = seconds(20);
inline constexpr Duration ws_pong_timeout = seconds(20);
inline constexpr Duration ws_close_timeout = seconds(5);
inline constexpr std::size_t sse_event_bytes_max = 4 << 20;
inline constexpr std::size_t page_items_default = 100;
inline constexpr std::size_t page_items_max = 1000;
inline constexpr std::size_t live_jobs_max = 20'000;  // shown by the live stream, the newest

// The longest duration a user may specify (ten years), so that sums of durations do not overflow.
inline constexpr Duration time_named_max = hours(24 * 366 * 10);

// Jobs
inline constexpr std::size_t argv_bytes_max = 256 << 10;
inline constexpr std::size_t env_bytes_max = 256 << 10;
inline constexpr std::size_t labels_max = 32;
// All texts of a job together: the agent's start message must fit into one frame.
inline constexpr std::size_t job_texts_bytes_max = 1 << 20;
inline constexpr std::size_t reason_bytes_max = 256;  // reasons that people give for an action
// Messages from machines and programs that are shown to people.
inline constexpr std::size_t words_bytes_max = 500;
inline constexpr std::uint64_t array_elements_max = 100'000;
inline constexpr std::uint64_t queued_jobs_max = 2'000'000;
// Quotas (core/control/quotas.h): what one user, and one project, may hold of the head by default.
// Installation admins have no default, only what is set for them.
inline constexpr std::int64_t user_queued_jobs_max = 200'000;
inline constexpr std::int64_t project_queued_jobs_max = 500'000;
inline constexpr std::int64_t user_spec_bytes_max = 256 << 20;
inline constexpr std::int64_t project_spec_bytes_max = std::int64_t{1} << 30;
inline constexpr std::int64_t user_file_bytes_max = std::int64_t{20} << 30;
// Jobs looked at, and elements of an array stopped, before other requests get a turn.
inline constexpr std::size_t jobs_walked_per_turn = 4'000;
inline constexpr std::size_t jobs_stopped_per_turn = 500;
inline constexpr std::size_t dependencies_max = 256;
inline constexpr std::uint32_t retries_max = 100;
// CPU share assumed for placing a task that requests no CPU: forty tasks per core. Without it an
// array of 100,000 jobs without requests would start all at once. It limits how many tasks run
// concurrently, not how much CPU one of them may use.
inline constexpr std::int64_t task_cpu_milli_assumed = 25;
inline constexpr std::uint32_t nodes_per_job_max = 4096;
inline constexpr std::size_t roles_per_group_max = 32;
inline constexpr std::uint32_t members_per_group_max = 256;
inline constexpr std::uint32_t procs_per_node_max = 256;
// Processes and threads of one job on one node, unless it asks for another number: far more than
// data loaders need, and far fewer than a fork bomb needs to overload a machine. At most an eighth
// of what the kernel has for the whole node.
inline constexpr std::int64_t task_processes_max = 4'096;
inline constexpr std::size_t allowed_blocks_max = 64;  // of addresses, for one job or project
// Of one job with --network internet; the oldest flow of packets ends for a new one.
inline constexpr std::size_t uplink_connections_max = 1'024;
inline constexpr std::size_t uplink_flows_max = 512;
inline constexpr std::size_t uplink_packet_ports_max = 64;  // different ports packets are sent to
inline constexpr Duration stop_grace_default = seconds(10);
inline constexpr Duration stop_grace_max = hours(1);
inline constexpr std::size_t idempotency_keys_max = 100'000;  // oldest forgotten first
inline constexpr Duration idempotency_key_life = hours(24);
// Recently ended jobs kept in memory; older ones come from the store.
inline constexpr std::size_t finished_documents_max = 4096;

// Endpoints and their gateway
inline constexpr std::size_t endpoints_max = 4096;
// Held requests of one endpoint; further ones are answered with 429.
inline constexpr std::size_t endpoint_queue_max = 1000;
inline constexpr std::uint32_t endpoint_replicas_max = 1024;
inline constexpr std::size_t endpoint_revisions_max = 20;  // kept for rollback; the oldest go first
inline constexpr std::size_t endpoint_keys_max = 100;
inline constexpr std::uint32_t gateway_tries_max = 3;  // of one request, on different replicas
// Body bytes of a request that waits for a replica; the rest waits in the kernel.
inline constexpr std::size_t gateway_held_body_bytes_max = 64 << 10;
// Bytes inside the proxy, per direction; beyond it the sender is paused.
inline constexpr std::size_t gateway_flow_bytes_max = 256 << 10;
inline constexpr std::size_t gateway_idle_per_replica_max = 256;  // kept connections
inline constexpr Duration gateway_connect_timeout = seconds(5);
// Body of an asynchronous call and of its kept answer: both are in the journal.
inline constexpr std::size_t async_body_bytes_max = 1 << 20;
inline constexpr std::size_t async_calls_max = 10'000;  // waiting or kept, of all endpoints
inline constexpr Duration async_result_life = hours(1);

// Scheduler
inline constexpr std::size_t gpus_per_node_max = 64;
// Policy `shortest`: a job can be overtaken only by jobs submitted within this many times its
// length.
inline constexpr std::int64_t shortest_patience = 16;
// Assumed length of a job with no history, where jobs are ordered by length.
inline constexpr Duration duration_assumed = hours(4);
inline constexpr Duration duration_ranked_max = hours(24 * 14);  // longer ones are ordered as this
inline constexpr std::size_t reservations_max = 10'000;
inline constexpr Duration reservation_ahead_max = hours(24 * 366);
// Kinds of runs remembered; the least recently used are forgotten first.
inline constexpr std::size_t durations_keys_max = 8192;
inline constexpr std::size_t durations_per_key_max = 16;  // the latest runs of each
// An elastic gang that finds no new member for this long restarts completely.
inline constexpr Duration repair_wait_max = minutes(10);
inline constexpr std::uint32_t repairs_max = 100;  // of one job

// Pools
inline constexpr std::uint32_t pool_machines_max = 10'000;
// Queued jobs examined for missing capacity; the rest waits behind them anyway.
inline constexpr std::size_t pool_jobs_looked_at_max = 20'000;
inline constexpr std::size_t pool_kinds_explained_max = 256;
// A pool whose settings or credentials are wrong is asked again this seldom: they may have been
// fixed on the provider's side.
inline constexpr Duration pool_settings_pause = minutes(15);
// How long a refused offer is not ordered again (docs/adr/0017).
inline constexpr Duration offer_capacity_pause = minutes(3);
inline constexpr Duration offer_quota_pause = minutes(10);
inline constexpr Duration offer_missing_pause = hours(23);
inline constexpr std::size_t pool_offers_max = 4096;
inline constexpr Duration pool_offers_every = hours(6);  // prices change
inline constexpr Duration pool_offers_retry = minutes(1);
inline constexpr std::size_t pool_program_bytes_max = std::size_t{1} << 30;
inline constexpr std::size_t pool_refusals_max = 512;
inline constexpr Duration pool_refusal_kept = hours(1);  // for `explain`
// A rented machine whose agent has not connected by then is released. The machine ends itself a
// little earlier (pool/boot.h).
inline constexpr Duration pool_denied_pause = minutes(5);  // after the provider refused
// A requested machine is kept at least this long.
inline constexpr Duration pool_second_thoughts = seconds(10);
// Before an allocation ends, nothing new starts in it for this long.
inline constexpr Duration pool_end_margin = minutes(5);
// Before an allocation ends, jobs that still run are requeued.
inline constexpr Duration pool_end_grace = seconds(60);
inline constexpr Duration pool_command_timeout = minutes(10);
// Listing and ending answer sooner than creating. What hangs is asked again then.
inline constexpr Duration pool_list_timeout = minutes(1), pool_delete_timeout = minutes(2);
inline constexpr std::size_t pool_command_output_bytes_max = 4 << 20;
inline constexpr Duration join_token_life_default = hours(24);
// A machine that joined and never connected keeps its name for this long.
inline constexpr Duration join_unconnected_kept = minutes(10);
// Tokens of people, unless another life is asked for.
inline constexpr Duration token_life_default = hours(24 * 90);

// Agent protocol
inline constexpr std::size_t agent_frame_bytes_max = 4 << 20;
inline constexpr Duration agent_heartbeat = seconds(2);
inline constexpr Duration agent_unreachable_after = seconds(10);
// Without a head for this long, an agent that must fence stops its tasks.
inline constexpr Duration agent_self_fence = seconds(60);
inline constexpr Duration fence_margin = seconds(15);
// After this long without contact, tasks that must fence have ended.
inline constexpr Duration fenced_after = agent_self_fence + fence_margin;
// Then SIGKILL, regardless of the job's own grace: shorter than the head's additional wait.
inline constexpr Duration fence_grace = seconds(10);

// An unacknowledged report is sent again after this.
inline constexpr Duration report_resend_after = seconds(5);
// How long the directory of an ended task is kept once the head has its exit.
inline constexpr Duration task_retention = hours(24);
// Ended tasks kept on a node; the oldest are removed first.
inline constexpr std::size_t tasks_retained_max = 20'000;
// Ids of removed tasks, so that none is ever started again.
inline constexpr std::size_t tombstones_max = 100'000;

// Images and environments on a node: fetched by processes of the jobs' users, each watched by a
// thread
inline constexpr std::size_t containers_prepared_max = 16;  // at once, for all users
// Eight users must be slow before a ninth waits.
inline constexpr std::size_t containers_prepared_per_user_max = 2;
// Without any progress; the largest layers take minutes to unpack.
inline constexpr Duration container_quiet_max = minutes(10);
// With or without progress: a server that sends a byte a minute must not hold a slot indefinitely.
inline constexpr Duration container_prepared_within = hours(6);
// Files examined to decide whether a checkpoint is complete; with more, the job must say so itself.
inline constexpr std::size_t checkpoint_entries_max = 200'000;

// Logs of jobs
inline constexpr std::uint64_t log_segment_bytes = 16 << 20;
// 128 MiB per task; the oldest segment is dropped first.
inline constexpr std::uint32_t log_segments_max = 8;
inline constexpr std::size_t log_chunk_bytes_max = 256 << 10;
// Input buffered for a job that does not read; heads send less ahead.
inline constexpr std::size_t task_input_bytes_max = 4 << 20;

// Store
inline constexpr std::size_t journal_batch_events_max = 4096;
inline constexpr std::uint64_t ballast_bytes = 32 << 20;
inline constexpr std::uint64_t snapshot_every_events = 50'000;
// Held in memory while the disk is full; beyond it the head stops.
inline constexpr std::size_t journal_queue_bytes_max = 256 << 20;
inline constexpr std::size_t store_read_connections_max = 4;  // about 1 MiB of page cache each
// Then a page comes back short, with a cursor.
inline constexpr std::size_t query_rows_scanned_max = 50'000;

// History: samples, stored beside the journal in a fixed amount of space. A GPU takes 113 kB
// (2 h of ten-second, 24 h of one-minute and 31 days of quarter-hour means), a job one page of 4
// KiB whatever its length. 1,000 GPUs and 100,000 jobs: 0.53 GB.
inline constexpr std::size_t history_gpus_max = 4096;
inline constexpr std::size_t history_jobs_max = 100'000;  // the oldest go first
inline constexpr Duration history_step = seconds(10);
// Of a job that just began; doubles whenever its points are used up.
inline constexpr Duration history_job_step = seconds(2);
inline constexpr std::size_t history_job_points_max = 128;
// For running jobs; the end of a job is saved at once.
inline constexpr Duration history_save_every = seconds(300);
inline constexpr int gpu_drain_score = 50;  // a GPU with a lower score is drained

inline constexpr std::size_t snapshot_bytes_max = std::size_t{2} << 30;

}  // namespace billow::limits
