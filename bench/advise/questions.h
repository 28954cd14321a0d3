// 32 ordinary questions (8 models under 4 loads): what is recommended by default, and how often the
// answer is one that a company would not follow.
#pragma once

namespace billow::advise {

void report_questions();

}  // namespace billow::advise
