// A config.json comes from anywhere. Whatever is done to one, reading it is a clear error or a
// model within bounds, and what follows from a model that was read (memory, advice) is finite or an
// error. Deterministic: the same mutations in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "advise/memory.h"
#include "advise/recommend.h"
#include "base/file.h"
#include "tests/unit/advise/data_dir.h"

namespace billow::advise {
namespace {

struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    state += 0x9e3779b97f4a7c15ull;
    std::uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
};

const char* seeds[] = {
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":4096,)"
    R"("num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,)"
    R"("intermediate_size":14336,"vocab_size":128256,"max_position_embeddings":131072,)"
    R"("torch_dtype":"bfloat16"})",
    R"({"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3",)"
    R"("hidden_size":7168,"num_hidden_layers":61,"num_attention_heads":128,)"
    R"("num_key_value_heads":128,"intermediate_size":18432,"moe_intermediate_size":2048,)"
    R"("n_routed_experts":256,"n_shared_experts":1,"num_experts_per_tok":8,)"
    R"("first_k_dense_replace":3,"kv_lora_rank":512,"q_lora_rank":1536,)"
    R"("qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"vocab_size":129280,)"
    R"("quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}})",
    R"({"model_type":"gemma3","text_config":{"hidden_size":3840,"num_hidden_layers":48,)"
    R"("num_attention_heads":16,"num_key_value_heads":8,"head_dim":256,)"
    R"("intermediate_size":15360,"sliding_window":1024,"sliding_window_pattern":6},)"
    R"("vocab_size":262208})",
    R"({"model_type":"qwen3_next","hidden_size":2048,"num_hidden_layers":48,)"
    R"("num_attention_heads":16,"num_key_value_heads":2,"head_dim":256,)"
    R"("linear_num_key_heads":16,"linear_num_value_heads":32,"linear_key_head_dim":128,)"
    R"("linear_value_head_dim":128,"linear_conv_kernel_dim":4,"full_attention_interval":4,)"
    R"("num_experts":512,"num_experts_per_tok":10,"moe_intermediate_size":512,)"
    R"("shared_expert_intermediate_size":512,"vocab_size":151936})"};

const char* strange[] = {"-1",
                         "0",
                         "1e308",
                         "1e-300",
                         "-1e18",
                         "9223372036854775807",
                         "18446744073709551615",
                         "null",
                         "true",
                         "\"\"",
                         "\"4096\"",
                         "[]",
                         "{}",
                         "[[[[]]]]",
                         "1.5",
                         "{\"a\":{\"a\":{}}}",
                         "\"\\u0000\"",
                         "999999999",
                         "[1,2,3]",
                         "\"bfloat16\""};

std::string mutate(std::string text, Random& random) {
  for (std::size_t n = 1 + random.below(4); n > 0 && !text.empty(); --n) {
    std::size_t at = random.below(text.size());
    switch (random.below(8)) {
      case 0:
        text[at] = static_cast<char>(random.below(256));
        break;
      case 1:
        text.erase(at, 1 + random.below(20));
        break;
      case 2:
        text.insert(at, 1, "{}[],:\"0123456789eE.-\\"[random.below(22)]);
        break;
      case 3:
        text.resize(at);
        break;
      case 4: {  // another value for a key
        auto colon = text.find(':', at);
        if (colon == std::string::npos)
          break;
        auto end = text.find_first_of(",}", colon);
        if (end != std::string::npos)
          text.replace(colon + 1, end - colon - 1, strange[random.below(std::size(strange))]);
        break;
      }
      case 5: {  // a digit, so that sizes stay plausible and disagree
        auto digit = text.find_first_of("0123456789", at);
        if (digit != std::string::npos)
          text[digit] = static_cast<char>('0' + random.below(10));
        break;
      }
      case 6:
        text.insert(at, text.substr(random.below(text.size()), random.below(60)));
        break;
      case 7: {  // a key that is not there
        auto quote = text.find("\"", at);
        if (quote != std::string::npos && quote + 1 < text.size())
          text[quote + 1] = 'x';
        break;
      }
    }
  }
  return text;
}

void check_bounds(const ModelShape& model, const std::string& text) {
  auto* shape = &model;
  double n = shape->parameters();
  ASSERT_TRUE(std::isfinite(n) && n > 0 && n < 1e16) << text;
  ASSERT_GE(shape->active_parameters(), 0) << text;
  ASSERT_TRUE(std::isfinite(weight_parts(*shape).total()) && weight_parts(*shape).total() > 0)
      << text;
  double kv = kv_bytes(*shape, Precision::bf16, 4096);
  ASSERT_TRUE(std::isfinite(kv) && kv >= 0) << text;
  auto m = serving_memory(*shape, shape->kv_native, {.tensor = 8},
                          {.context = 4096, .sequences = 4}, 80e9);
  ASSERT_TRUE(std::isfinite(m.total()) && m.total() > 0 && m.sequences_max >= 0) << text;
}
// Whether it was read at all.
bool check(const std::string& text) {
  auto shape = read_model_config(text);
  if (!shape) {
    EXPECT_FALSE(shape.error().message.empty()) << text;
  } else {
    check_bounds(*shape, text);
  }
  return shape.has_value();
}

TEST(MutatedConfig, IsAnErrorOrAModelWithinBounds) {
  Random random{20261115};
  int read = 0;
  for (int i = 0; i < 4000; ++i) {
    auto text = mutate(seeds[random.below(std::size(seeds))], random);
    read += check(text);
    if (HasFatalFailure())
      return;
  }
  EXPECT_GT(read, 200) << "too few mutants live for the bounds to mean anything";
  EXPECT_LT(read, 3800) << "too few mutants die for the errors to mean anything";
}

TEST(MutatedConfig, AdviceOnOneIsFiniteOrAnError) {
  Random random{7};
  auto catalogue = Catalogue::embedded();
  auto calibration = Calibration::embedded();
  for (int i = 0; i < 24; ++i) {
    auto shape = read_model_config(mutate(seeds[random.below(std::size(seeds))], random));
    if (!shape)
      continue;
    Request r;
    r.model = *shape;
    r.users = 4;
    r.input = 256;
    r.output = 64;
    auto advice = recommend(r, catalogue, calibration);
    if (!advice)
      continue;
    for (auto& c : advice->ranked) {
      ASSERT_TRUE(c.memory.fits());
      ASSERT_TRUE(std::isfinite(c.latency.tpot_ms.value) && c.latency.tpot_ms.value > 0);
      ASSERT_LE(c.latency.tpot_ms.low, c.latency.tpot_ms.high);
    }
  }
}

TEST(MutatedConfig, GivenConfigsSurviveTheSame) {
  auto dir = test::data_dir("advisor/model_configs");
  if (dir.empty())
    GTEST_SKIP() << "the given model configs are not here";
  std::vector<std::string> paths;
  for (auto& entry : std::filesystem::directory_iterator(dir))
    if (entry.path().extension() == ".json")
      paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  Random random{3};
  for (auto& path : paths) {
    auto text = *read_file(path);
    for (int i = 0; i < 8; ++i) {
      check(mutate(text, random));
      if (HasFatalFailure())
        return;
    }
  }
}

}  // namespace
}  // namespace billow::advise
