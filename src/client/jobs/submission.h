// From words on a command line to a job that the head knows: what `run`, `shell` and `submit`
// share.
#pragma once

#include "client/frame/command.h"
#include "client/frame/connect.h"
#include "client/request/job_request.h"

namespace billow::client {

inline constexpr char environment_details[] =
    "If the head is on another machine (or with --sync), the working directory is copied to the "
    "job, except files excluded by .gitignore and .billowignore. The environment is copied too, "
    "except variables that look like credentials (…TOKEN, …SECRET…, …PASSWORD…, …_KEY, AWS_… and "
    "the like); pass one of those with --env-var NAME.";

// A job file or a script with options where the operands name one, else the command.
Result<JobRequest> request_of(const Parsed& parsed);

// Array elements in --after are numbers of their own, and a name may be that of several jobs; the
// head knows them.
Status resolve_after(Client& client, JobRequest& request);

// The variables the job gets. Those that stay behind are named once, because the job fails later
// and elsewhere without them.
Result<Environment> variables_for(const Parsed& parsed, JobRequest& request);

// Everything the head must know and have before it can be asked for the job; the variables it gets.
Result<Environment> prepare(const Parsed& parsed, Client& client, JobRequest& request);

Result<Json> ask_for_job(const Parsed& parsed,
                         Client& client,
                         const JobRequest& request,
                         const Environment& env);

// All of it. With `one_stream` the job's stdout and stderr come in the order written, and cannot be
// told apart.
Result<Json> submit(const Parsed& parsed, Client& client, JobRequest& request, bool one_stream);

}  // namespace billow::client
