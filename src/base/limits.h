// Every limit of Billow, named in one place, with the reason where the number is not obvious (those
// of asynchronous calls: call_limits.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace billow::limits {

// HTTP
inline constexpr std::size_t http_header_bytes_max = 32 << 10;
inline constexpr std::size_t api_body_bytes_max =
    8 << 20;  // an array of 100,000 or a large job file; more is 413
inline constexpr std::size_t http_connections_max = 16384;
inline constexpr std::size_t stream_buffer_bytes_max =
    1 << 20;  // per follower; overflow drops the follower, which resumes by offset
inline constexpr Duration http_idle_timeout = seconds(75);
inline constexpr Duration http_header_timeout = seconds(10);
inline constexpr std::size_t http_headers_max = 100;
inline constexpr Duration http_body_idle_timeout =
    seconds(30);  // between two pieces of a request's body
inline constexpr Duration http_write_stall_timeout =
    seconds(60);  // a reader that takes nothing for this long is dropped
inline constexpr std::size_t http_pipelined_bytes_max =
    64 << 10;  // read ahead of the answer; further bytes wait in the kernel
inline constexpr std::size_t client_body_bytes_max = 64 << 20;
inline constexpr std::size_t client_connections_max = 4096;
inline constexpr std::size_t client_idle_per_endpoint_max = 32;
inline constexpr Duration client_idle_timeout =
    seconds(30);  // shorter than a server's, so that the client closes first
inline constexpr std::size_t ws_message_bytes_max = 4 << 20;
inline constexpr Duration ws_ping_interval = seconds(20);
inline constexpr Duration ws_pong_timeout = seconds(20);
inline constexpr Duration ws_close_timeout = seconds(5);
inline constexpr std::size_t sse_event_bytes_max = 4 << 20;
inline constexpr std::size_t page_items_default = 100;
inline constexpr std::size_t page_items_max = 1000;
inline constexpr std::size_t live_jobs_max = 20'000;  // shown by the live stream, the newest

// The longest time anybody may name (ten years), so that sums of times stay numbers
inline constexpr Duration time_named_max = hours(24 * 366 * 10);

// Jobs
inline constexpr std::size_t argv_bytes_max = 256 << 10;
inline constexpr std::size_t env_bytes_max = 256 << 10;
inline constexpr std::size_t labels_max = 32;
inline constexpr std::size_t job_texts_bytes_max =
    1 << 20;  // all of a job's texts together: a start order must fit a frame
inline constexpr std::size_t reason_bytes_max = 256;  // given by people for what they do
inline constexpr std::size_t words_bytes_max =
    500;  // said by machines and programs, and shown to people
inline constexpr std::uint64_t array_elements_max = 100'000;
inline constexpr std::uint64_t queued_jobs_max = 2'000'000;
inline constexpr std::size_t dependencies_max = 256;
inline constexpr std::uint32_t retries_max = 100;
// What a task that asks for no CPU counts as when it is placed: forty to a core. Without it an
// array of 100,000 jobs that ask for nothing would start all at once. It limits how many run beside
// each other, not what one of them may use.
inline constexpr std::int64_t task_cpu_milli_assumed = 25;
inline constexpr std::uint32_t nodes_per_job_max = 4096;
inline constexpr std::uint32_t procs_per_node_max = 256;
// Processes and threads of one job on one node, unless it asks for another number: far more than
// data loaders need, and far fewer than a loop of forks takes a machine down with.
inline constexpr std::int64_t task_processes_max = 32'768;
inline constexpr Duration stop_grace_default = seconds(10);
inline constexpr Duration stop_grace_max = hours(1);
inline constexpr std::size_t idempotency_keys_max = 100'000;  // oldest forgotten first
inline constexpr Duration idempotency_key_life = hours(24);
inline constexpr std::size_t finished_documents_max =
    4096;  // of jobs just ended, kept in memory; older ones come from the store

// Endpoints and their gateway
inline constexpr std::size_t endpoints_max = 4096;
inline constexpr std::size_t endpoint_queue_max =
    1000;  // held requests of one endpoint; more get 429
inline constexpr std::uint32_t endpoint_replicas_max = 1024;
inline constexpr std::size_t endpoint_revisions_max = 20;  // kept for rollback; the oldest go first
inline constexpr std::size_t endpoint_keys_max = 100;
inline constexpr std::uint32_t gateway_tries_max = 3;  // of one request, on different replicas
inline constexpr std::size_t gateway_held_body_bytes_max =
    64 << 10;  // of a request that waits for a replica; the rest waits in the kernel
inline constexpr std::size_t gateway_flow_bytes_max =
    256 << 10;  // on its way through the proxy, each direction; then the sender is paused
inline constexpr std::size_t gateway_idle_per_replica_max = 256;  // kept connections
inline constexpr Duration gateway_connect_timeout = seconds(5);
inline constexpr std::size_t async_body_bytes_max =
    1 << 20;  // of an asynchronous call and of its kept answer: both are in the journal
inline constexpr std::size_t async_calls_max = 10'000;  // waiting or kept, of all endpoints
inline constexpr Duration async_result_life = hours(1);

// Scheduler
inline constexpr std::size_t gpus_per_node_max = 64;
inline constexpr std::int64_t shortest_patience =
    16;  // policy `shortest`: passed by jobs submitted within so many times its length
inline constexpr Duration duration_assumed =
    hours(4);  // of a job nothing is known of, where jobs are ordered by length
inline constexpr Duration duration_ranked_max = hours(24 * 14);  // longer ones are ordered as this
inline constexpr std::size_t reservations_max = 10'000;
inline constexpr Duration reservation_ahead_max = hours(24 * 366);
inline constexpr std::size_t durations_keys_max =
    8192;  // kinds of run remembered; the ones longest unused go first
inline constexpr std::size_t durations_per_key_max = 16;  // the latest runs of each
inline constexpr Duration repair_wait_max =
    minutes(10);  // an elastic gang that finds no new member for so long starts again whole
inline constexpr std::uint32_t repairs_max = 100;  // of one job

// Pools
inline constexpr std::uint32_t pool_machines_max = 10'000;
inline constexpr std::size_t pool_jobs_looked_at_max =
    20'000;  // of the queue, for what is missing; the rest waits behind them anyway
inline constexpr std::size_t pool_kinds_explained_max = 64;
inline constexpr Duration pool_denied_pause = minutes(5);  // after an engine said no
inline constexpr Duration pool_second_thoughts =
    seconds(10);  // a machine asked for is kept at least this long
inline constexpr Duration pool_list_lag =
    seconds(15);  // an engine may list a new machine this late
inline constexpr Duration pool_end_margin =
    minutes(5);  // before an allocation's end nothing new starts in it
inline constexpr Duration pool_end_grace =
    seconds(60);  // and what still runs is sent back into the queue
inline constexpr Duration pool_command_timeout = minutes(10);
inline constexpr std::size_t pool_command_output_bytes_max = 4 << 20;
inline constexpr Duration join_token_life_default = hours(24);

// Agent protocol
inline constexpr std::size_t agent_frame_bytes_max = 4 << 20;
inline constexpr Duration agent_heartbeat = seconds(2);
inline constexpr Duration agent_unreachable_after = seconds(10);
inline constexpr Duration agent_self_fence =
    seconds(60);  // without a head for this long, an agent that must fence does
inline constexpr Duration fence_margin = seconds(15);
inline constexpr Duration fence_grace =
    seconds(10);  // then SIGKILL, whatever grace the job has: less than what the head waits longer

inline constexpr Duration report_resend_after =
    seconds(5);  // an unacknowledged report is sent again
inline constexpr Duration task_retention =
    hours(24);  // an ended task's directory, once the head has its exit
inline constexpr std::size_t tasks_retained_max =
    20'000;  // ended tasks kept on a node; the oldest go first
inline constexpr std::size_t tombstones_max =
    100'000;  // ids of removed tasks, so that none is ever started again

// Images and environments on a node: brought by processes of the jobs' users, each watched by a
// thread
inline constexpr std::size_t rooms_brought_max = 16;  // at once, for everybody
inline constexpr std::size_t rooms_brought_per_user_max =
    2;  // so that eight users must be slow before a ninth waits
inline constexpr Duration room_quiet_max =
    minutes(10);  // without any progress; the largest layers take minutes to unpack
inline constexpr Duration room_brought_within =
    hours(6);  // progress or not: a server that gives a byte a minute holds nobody's place for ever
inline constexpr std::size_t checkpoint_entries_max =
    200'000;  // looked at for whether a checkpoint is complete; beyond them the job must say so
              // itself

// Logs of jobs
inline constexpr std::uint64_t log_segment_bytes = 16 << 20;
inline constexpr std::uint32_t log_segments_max =
    8;  // 128 MiB a task, the oldest segment dropped first
inline constexpr std::size_t log_chunk_bytes_max = 256 << 10;
inline constexpr std::size_t task_input_bytes_max =
    4 << 20;  // on its way to a job that does not read; heads send less ahead

// Store
inline constexpr std::size_t journal_batch_events_max = 4096;
inline constexpr std::uint64_t ballast_bytes = 32 << 20;
inline constexpr std::uint64_t snapshot_every_events = 50'000;
inline constexpr std::size_t journal_queue_bytes_max =
    256 << 20;  // held in memory while the disk is full; beyond it the head stops
inline constexpr std::size_t store_read_connections_max = 4;  // about 1 MiB of page cache each
inline constexpr std::size_t query_rows_scanned_max =
    50'000;  // then a page comes back short, with a cursor

// History: samples, kept beside the journal in space that is known beforehand. A GPU takes 113 kB
// (2 h of ten-second, 24 h of one-minute and 31 days of quarter-hour means), a job one page of 4
// KiB whatever its length. 1,000 GPUs and 100,000 jobs: 0.53 GB.
inline constexpr std::size_t history_gpus_max = 4096;
inline constexpr std::size_t history_jobs_max = 100'000;  // the oldest go first
inline constexpr Duration history_step = seconds(10);
inline constexpr Duration history_job_step =
    seconds(2);  // of a job that just began; doubles whenever its points are used up
inline constexpr std::size_t history_job_points_max = 128;
inline constexpr Duration history_save_every =
    seconds(300);                           // of running jobs; an end is saved at once
inline constexpr int gpu_drain_score = 50;  // a GPU with less is drained

inline constexpr std::size_t snapshot_bytes_max = std::size_t{2} << 30;

}  // namespace billow::limits
