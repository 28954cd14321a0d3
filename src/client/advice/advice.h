// What advise, prices and plan share: where their data lies, and errors that with --json are a
// document on stdout as well as a message on stderr.
#pragma once

#include <string>
#include <vector>

#include "advise/calibration.h"
#include "advise/review.h"
#include "base/json.h"
#include "client/frame/console.h"

namespace billow::client {

// The model directory of --models, or of BILLOW_MODELS.
std::string models_directory(const Parsed& parsed);
// The model of --model, or the one operand; empty where neither was given.
std::string model_named(const Parsed& parsed);

// Reports the error; returns the exit code. Invalid requests are usage errors.
int report_advice(const Parsed& parsed, const Error& error);
// The same for errors in files, which are failures whatever their code.
int report_advice_failed(const Parsed& parsed, const Error& error);

// `advise --batch`: a prediction for each row of a CSV of serving measurements.
int predict_rows(const Parsed& parsed,
                 const Catalogue& catalogue,
                 const advise::Calibration& calibration);

// What the head's jobs used of which GPU, newest first, back to a year.
Result<std::vector<advise::UsedSpan>> usage_of_head(Client& client);

}  // namespace billow::client
