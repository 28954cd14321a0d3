// Memory must be right before anything else is: KV bytes against a table worked out by hand,
// weights against published sizes, and never a "fits" for what does not.
#include "advise/memory.h"
#include "advise/training/split.h"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text.h"
#include "core/ledger/catalogue.h"
#include "tests/unit/advise/data_dir.h"

namespace billow::advise {
namespace {

std::string config(const char* body) {
  return std::string("{\"vocab_size\":32000,") + body + "}";
}

TEST(ModelShape, ReadsGroupedQueryAttention) {
  auto s = read_model_config(config(
      R"("model_type":"llama","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
    "num_key_value_heads":8,"intermediate_size":14336)"));
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(kv_per_token(*s, Precision::bf16).bytes, 32 * 2 * 8 * 128 * 2);
  EXPECT_EQ(kv_per_token(*s, Precision::fp8).bytes, 32 * 2 * 8 * 128);
  double layer = 4096.0 * 4096 * 2 + 2 * 4096.0 * 1024 + 3 * 4096.0 * 14336;
  EXPECT_EQ(s->parameters(), 32 * layer + 2 * 32000.0 * 4096);
  EXPECT_TRUE(s->notes.empty());
}

TEST(ModelShape, LatentAttentionIsNotDoubled) {
  auto s = read_model_config(config(
      R"("model_type":"deepseek_v3","hidden_size":7168,"num_hidden_layers":61,
    "num_attention_heads":128,
    "kv_lora_rank":512,"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,
    "q_lora_rank":1536,"intermediate_size":18432,
    "n_routed_experts":256,"num_experts_per_tok":8,"moe_intermediate_size":2048,
    "n_shared_experts":1,"first_k_dense_replace":3)"));
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(kv_per_token(*s, Precision::bf16).bytes, 61 * (512 + 64) * 2);
  // Latents are kept whole by every tensor rank.
  EXPECT_EQ(kv_bytes(*s, Precision::bf16, 1600, 8), kv_bytes(*s, Precision::bf16, 1600, 1));
  EXPECT_EQ(s->layers[2].experts, 0);
  EXPECT_EQ(s->layers[3].experts, 256);
}

TEST(ModelShape, SlidingWindowsAreCapped) {
  auto s = read_model_config(config(
      R"("model_type":"gpt_oss","hidden_size":2880,"num_hidden_layers":4,
    "num_attention_heads":64,"head_dim":64,
    "num_key_value_heads":8,"intermediate_size":2880,"num_local_experts":32,
    "num_experts_per_tok":4,"sliding_window":128,
    "layer_types":["sliding_attention","full_attention","sliding_attention","full_attention"])"));
  ASSERT_TRUE(s) << s.error().message;
  auto kv = kv_per_token(*s, Precision::bf16);
  EXPECT_EQ(kv.bytes, 4 * 2 * 8 * 64 * 2);
  EXPECT_EQ(kv.bytes_far, 2 * 2 * 8 * 64 * 2);
  double per_layer = 2 * 8 * 64 * 2;
  EXPECT_EQ(kv_bytes(*s, Precision::bf16, 160000),
            2 * per_layer * 160000 + 2 * per_layer * 144);  // window and a block
}

TEST(ModelShape, LinearAttentionKeepsAState) {
  auto s = read_model_config(config(
      R"("model_type":"qwen3_5_text","hidden_size":2048,"num_hidden_layers":4,
    "num_attention_heads":16,
    "num_key_value_heads":2,"head_dim":256,"intermediate_size":4096,"full_attention_interval":4,
    "linear_num_key_heads":16,
    "linear_num_value_heads":32,"linear_key_head_dim":128,"linear_value_head_dim":128,
    "linear_conv_kernel_dim":4)"));
  ASSERT_TRUE(s) << s.error().message;
  auto kv = kv_per_token(*s, Precision::bf16);
  EXPECT_EQ(kv.bytes, 2 * 2 * 256 * 2);
  EXPECT_EQ(kv.state_bytes, 3 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2));
  EXPECT_EQ(s->attention_summary(), "1 full + 3 linear");
}

TEST(ModelShape, TensorRanksShareHeadsUntilThereIsOneEach) {
  auto s = read_model_config(config(
      R"("model_type":"llama","hidden_size":4096,"num_hidden_layers":2,"num_attention_heads":32,
    "num_key_value_heads":4,"intermediate_size":1024)"));
  double whole = kv_bytes(*s, Precision::bf16, 1600, 1);
  EXPECT_EQ(kv_bytes(*s, Precision::bf16, 1600, 4), whole / 4);
  EXPECT_EQ(kv_bytes(*s, Precision::bf16, 1600, 8), whole / 4);  // two ranks keep the same head
}

// Key/value bytes of one token in BF16 over all attention layers, each worked out by hand as
// layers × heads × (key + value dimensions) × 2, or layers × (latent + rope) × 2; and the published
// parameter count in billions.
struct Known {
  const char* file;
  double kv;
  double far;
  double billions;
};
const Known known[] = {
    {"meta-llama--Meta-Llama-3.1-8B", 32 * 8 * 256 * 2, 32 * 8 * 256 * 2, 8.03},
    {"meta-llama--Meta-Llama-3.1-70B", 80 * 8 * 256 * 2, 80 * 8 * 256 * 2, 70.55},
    {"meta-llama--Meta-Llama-3.1-405B", 126 * 8 * 256 * 2, 126 * 8 * 256 * 2, 405.85},
    {"mistralai--Mixtral-8x7B-v0.1", 32 * 8 * 256 * 2, 32 * 8 * 256 * 2, 46.70},
    {"mistralai--Mixtral-8x22B-v0.1", 56 * 8 * 256 * 2, 56 * 8 * 256 * 2, 140.62},
    {"Qwen--Qwen3-0.6B", 28 * 8 * 256 * 2, 28 * 8 * 256 * 2, 0.596},
    {"Qwen--Qwen3-1.7B", 28 * 8 * 256 * 2, 28 * 8 * 256 * 2, 1.72},
    {"Qwen--Qwen3-8B", 36 * 8 * 256 * 2, 36 * 8 * 256 * 2, 8.19},
    {"Qwen--Qwen3-32B", 64 * 8 * 256 * 2, 64 * 8 * 256 * 2, 32.76},
    {"Qwen--Qwen3-30B-A3B", 48 * 4 * 256 * 2, 48 * 4 * 256 * 2, 30.53},
    {"Qwen--Qwen3-235B-A22B", 94 * 4 * 256 * 2, 94 * 4 * 256 * 2, 235.09},
    {"Qwen--Qwen3-Coder-480B-A35B-Instruct", 62 * 8 * 256 * 2, 62 * 8 * 256 * 2, 480.15},
    {"Qwen--Qwen3-VL-8B-Instruct", 36 * 8 * 256 * 2, 36 * 8 * 256 * 2, 8.19},
    {"Qwen--Qwen3.5-27B", 16 * 4 * 512 * 2, 16 * 4 * 512 * 2, 27},
    {"Qwen--Qwen3.5-35B-A3B", 10 * 2 * 512 * 2, 10 * 2 * 512 * 2, 35},
    {"Qwen--Qwen3.5-122B-A10B", 12 * 2 * 512 * 2, 12 * 2 * 512 * 2, 122},
    {"Qwen--Qwen3.5-397B-A17B", 15 * 2 * 512 * 2, 15 * 2 * 512 * 2, 397},
    {"deepseek-ai--DeepSeek-R1", 61 * 576 * 2, 61 * 576 * 2, 671},
    {"deepseek-ai--DeepSeek-V3", 61 * 576 * 2, 61 * 576 * 2, 671},
    {"deepseek-ai--DeepSeek-V3.2", 61 * 576 * 2, 61 * 576 * 2, 671},
    // 21 layers fold 4 tokens into 512, 20 fold 128, two keep a window only
    {"deepseek-ai--DeepSeek-V4-Flash", (21 * 512 / 4 + 20 * 512 / 128) * 2,
     (21 * 512 / 4 + 20 * 512 / 128) * 2, 284},
    {"moonshotai--Kimi-K2-Instruct", 61 * 576 * 2, 61 * 576 * 2, 1026},
    {"moonshotai--Kimi-K2.5", 61 * 576 * 2, 61 * 576 * 2, 1026},
    {"moonshotai--Kimi-K3", 24 * 576 * 2, 24 * 576 * 2, 2800},
    {"zai-org--GLM-5", 78 * 576 * 2, 78 * 576 * 2, 744},
    {"zai-org--GLM-5.2", 78 * 576 * 2, 78 * 576 * 2, 744},
    {"openai--gpt-oss-120b", 36 * 8 * 128 * 2, 18 * 8 * 128 * 2, 116.8},
    {"openai--gpt-oss-20b", 24 * 8 * 128 * 2, 12 * 8 * 128 * 2, 20.9},
    {"MiniMaxAI--MiniMax-M2.5", 62 * 8 * 256 * 2, 62 * 8 * 256 * 2, 229},
    {"MiniMaxAI--MiniMax-M3", 60 * 4 * 256 * 2, 60 * 4 * 256 * 2, 426},
    {"google--gemma-4-26B-A4B", (25 * 8 * 512 + 5 * 2 * 1024) * 2, 5 * 2 * 1024 * 2, 25.3},
    {"nvidia--Gemma-4-31B-IT-NVFP4", (50 * 16 * 512 + 10 * 4 * 1024) * 2, 10 * 4 * 1024 * 2, 30.8},
    {"meta-llama--Llama-4-Scout-17B-16E-Instruct", 48 * 8 * 256 * 2, 12 * 8 * 256 * 2, 107.8},
    {"meta-llama--Llama-4-Maverick-17B-128E-Instruct", 48 * 8 * 256 * 2, 12 * 8 * 256 * 2, 400.7},
    {"XiaomiMiMo--MiMo-7B-Base", 36 * 8 * 256 * 2, 36 * 8 * 256 * 2, 7.62},
    {"XiaomiMiMo--MiMo-V2-Flash", (9 * 4 * 320 + 39 * 8 * 320) * 2, 9 * 4 * 320 * 2, 309},
    {"stepfun-ai--Step-3.7-Flash", 45 * 8 * 256 * 2, 12 * 8 * 256 * 2, 196},
    {"nvidia--Llama-3_3-Nemotron-Super-49B-v1", 49 * 8 * 256 * 2, 49 * 8 * 256 * 2, 49.87},
    {"nvidia--Nemotron-H-56B-Base-8K", 10 * 8 * 256 * 2, 10 * 8 * 256 * 2, 56},
    {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6 * 2 * 256 * 2, 6 * 2 * 256 * 2, 31.6},
    {"nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 8 * 2 * 256 * 2, 8 * 2 * 256 * 2, 120.6},
    {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 12 * 2 * 256 * 2, 12 * 2 * 256 * 2, 550},
};

TEST(GivenConfigs, KvIsExactAndParametersWithinTwoPercent) {
  auto dir = test::data_dir("advisor/model_configs");
  if (dir.empty())
    GTEST_SKIP() << "no measured data here (set BILLOW_DATA_DIR)";
  for (auto& k : known) {
    auto s = read_model_file(dir + "/" + k.file + "_config.json");
    ASSERT_TRUE(s) << k.file << ": " << s.error().message;
    auto kv = kv_per_token(*s, Precision::bf16);
    EXPECT_EQ(kv.bytes, k.kv) << k.file;
    EXPECT_EQ(kv.bytes_far, k.far) << k.file;
    EXPECT_NEAR(s->parameters() / 1e9, k.billions, k.billions * 0.02) << k.file;
  }
}

TEST(GivenConfigs, EveryOneIsReadAndNamedVariantsAgreeWithTheirBase) {
  auto dir = test::data_dir("advisor/model_configs");
  if (dir.empty())
    GTEST_SKIP() << "no measured data here (set BILLOW_DATA_DIR)";
  int read = 0;
  for (auto& entry : std::filesystem::directory_iterator(dir)) {
    auto name = entry.path().filename().string();
    if (!name.ends_with("_config.json") || name.find("hf_quant") != std::string::npos)
      continue;
    auto s = read_model_file(entry.path().string());
    ASSERT_TRUE(s) << name << ": " << s.error().message;
    ++read;
    // The same architecture has the same cache, however its weights are stored.
    for (auto& k : known) {
      std::string base = std::string(k.file).substr(std::string(k.file).find("--") + 2);
      if (name.find("--" + base + "-") != std::string::npos &&
          name.find("Coder") == std::string::npos) {
        EXPECT_EQ(kv_per_token(*s, Precision::bf16).bytes, k.kv) << name;
      }
    }
  }
  EXPECT_GE(read, 70);
}

TEST(GivenConfigs, QuantizedCheckpointsWeighWhatTheyDo) {
  auto dir = test::data_dir("advisor/model_configs");
  if (dir.empty())
    GTEST_SKIP() << "no measured data here (set BILLOW_DATA_DIR)";
  struct Row {
    const char* file;
    double gigabytes;
  };  // published sizes of the text model's shards
  for (auto& [file, gb] :
       {Row{"openai--gpt-oss-120b", 65.2}, Row{"openai--gpt-oss-20b", 13.76},
        Row{"Qwen--Qwen3-32B-FP8", 34.3}, Row{"nvidia--Llama-3.1-70B-Instruct-FP8", 72.7},
        Row{"moonshotai--Kimi-K2.5", 595}, Row{"nvidia--Qwen3-235B-A22B-NVFP4", 134}}) {
    auto s = read_model_file(dir + "/" + file + "_config.json");
    ASSERT_TRUE(s);
    EXPECT_NEAR(weight_parts(*s).total() / 1e9, gb, gb * 0.02) << file;
  }
}

TEST(ServingMemory, NothingFitsThatDoesNot) {
  auto seventy = *model_of_size("70B");
  double card = 80.0 * 1024 * 1024 * 1024;
  EXPECT_FALSE(serving_memory(seventy, Precision::bf16, {}, {}, card).fits());
  EXPECT_TRUE(serving_memory(seventy, Precision::bf16, {.tensor = 4}, {}, card).fits());
  // 70B at INT8 sits on one 80 GB card only with almost nothing beside it: the field's rule needs
  // its context stated.
  auto eight = at_precision(seventy, Precision::int8);
  auto tight = serving_memory(eight, Precision::bf16, {}, {.context = 2048, .sequences = 1}, card,
                              {.utilisation = 0.97});
  EXPECT_LT(tight.sequences_max, 20);
  auto m = serving_memory(*model_of_size("7B"), Precision::bf16, {},
                          {.context = 4096, .sequences = 4}, 24e9);
  EXPECT_TRUE(m.fits());
  EXPECT_GE(m.sequences_max, 4);
  EXPECT_FALSE(serving_memory(*model_of_size("7B"), Precision::bf16, {},
                              {.context = 4096, .sequences = m.sequences_max + 1}, 24e9)
                   .fits());
}

TEST(ServingMemory, NothingMeasuredWasCalledImpossibleByMuch) {
  // More parallel ranks never need more memory each.
  auto s = *model_of_size("70B");
  double before = 1e300;
  for (int tp : {1, 2, 4, 8}) {
    double now = weight_bytes_per_gpu(s, {.tensor = tp});
    EXPECT_LT(now, before);
    before = now;
  }
}

TEST(TrainingMemory, FollowsTheUsualArithmetic) {
  const TrainingShape s(*model_of_size("7B"));
  double n = s.dense;
  auto plain = training_memory(s, {.sequence = 2048});
  EXPECT_NEAR(plain.weights + plain.gradients + plain.optimizer, 16 * n, 1);
  auto one = training_memory(s, {.zero = Zero::optimizer, .gpus = 8}),
       two = training_memory(s, {.zero = Zero::gradients, .gpus = 8}),
       three = training_memory(s, {.zero = Zero::parameters, .gpus = 8});
  EXPECT_NEAR(one.optimizer, 12 * n / 8, 1);
  EXPECT_NEAR(two.gradients, 2 * n / 8, 1);
  EXPECT_NEAR(three.weights, 2 * n / 8, 1);
  auto all = training_memory(s, {.checkpointing = Checkpointing::none}),
       none = training_memory(s, {.checkpointing = Checkpointing::full});
  EXPECT_GT(all.activations, 2 * none.activations);
  EXPECT_LT(training_memory(s, {.tuning = Tuning::qlora}).total(), 24e9);
  EXPECT_GT(training_traffic(s, {.zero = Zero::parameters, .gpus = 8}).total(),
            training_traffic(s, {.zero = Zero::optimizer, .gpus = 8}).total());
}

TEST(TrainingSplit, StagesContextAndExpertsDivideWhatTheyShould) {
  const TrainingShape dense(*model_of_size("70B"));
  // A stage has its layers, and the first also the embeddings.
  const auto whole = training_memory(dense, {.gpus = 8, .tensor = 8}),
             staged = training_memory(dense, {.gpus = 64, .tensor = 8, .pipeline = 8});
  EXPECT_NEAR(staged.weights, ((dense.dense - dense.ends) / 8 + dense.ends) * 2 / 8, 1);
  EXPECT_GT(staged.weights, whole.weights / 8);
  // The first stage has started one micro-batch per stage, so activations are not divided.
  const auto busy =
      training_memory(dense, {.gpus = 64, .tensor = 8, .pipeline = 8, .micro_batches = 64});
  EXPECT_GT(busy.activations, 3 * staged.activations);
  // Ranks that share a sequence keep their part of it, and shard the weights like data ranks.
  const TrainingPlan long_one{
      .zero = Zero::parameters, .gpus = 8, .context = 8, .sequence = 131072};
  const TrainingPlan undivided{.zero = Zero::parameters, .gpus = 8, .sequence = 131072};
  EXPECT_NEAR(training_memory(dense, long_one).activations,
              training_memory(dense, undivided).activations / 8, 1);
  EXPECT_NEAR(training_memory(dense, long_one).weights, training_memory(dense, undivided).weights,
              1);
  EXPECT_EQ(long_one.data(), 1);
  EXPECT_GT(training_traffic(dense, long_one).context, 0);
  // Experts alone are spread by expert ranks, and tokens travel to them.
  const TrainingShape mixture(*shipped_model("Mixtral-8x7B-v0.1"));
  EXPECT_GT(mixture.experts, 0.9 * (mixture.dense + mixture.experts));
  const auto together = training_memory(mixture, {.gpus = 8}),
             spread = training_memory(mixture, {.gpus = 8, .expert = 8});
  EXPECT_NEAR(spread.weights, 2 * (mixture.dense + mixture.experts / 8), 1);
  EXPECT_LT(spread.total(), together.total());
  EXPECT_GT(training_traffic(mixture, {.gpus = 8, .expert = 8}).expert, 0);
  EXPECT_EQ(training_traffic(mixture, {.gpus = 8}).expert, 0);
  // Stages wait for the first and the last micro-batch.
  EXPECT_EQ(pipeline_bubble({.gpus = 8}), 0);
  EXPECT_NEAR(pipeline_bubble({.gpus = 64, .pipeline = 8, .micro_batches = 64}), 7.0 / 64, 1e-9);
}

TEST(ModelShape, SizesAreExactAndNonsenseIsRefused) {
  for (auto text : {"7B", "70b", "350M", "1.5T", "0.5B"}) {
    auto s = model_of_size(text);
    ASSERT_TRUE(s) << text;
    EXPECT_FALSE(s->notes.empty());
  }
  EXPECT_NEAR(model_of_size("13B")->parameters(), 13e9, 13e9 * 0.001);
  for (auto text : {"", "B", "-7B", "7", "nanB", "1e30B", "7BB", "seven"})
    EXPECT_FALSE(model_of_size(text)) << text;
}

TEST(HostileConfig, IsRefusedWithTheFieldNamed) {
  struct Row {
    const char* text;
    const char* says;
  };
  for (
      auto& [text, says] :
      {Row{"", "config.json"}, Row{"{", "config.json"}, Row{"[]", "array"},
       Row{"{}", "hidden_size"}, Row{"null", "null"},
       Row{R"({"hidden_size":-1,"num_hidden_layers":2,"num_attention_heads":2,"vocab_size":100})",
           "hidden_size"},
       Row{R"({"hidden_size":4096,"num_hidden_layers":1e30,"num_attention_heads":2,)"
           R"("vocab_size":100})",
           "num_hidden_layers"},
       Row{R"({"hidden_size":4096,"num_hidden_layers":2.5,"num_attention_heads":2,)"
           R"("vocab_size":100})",
           "num_hidden_layers"},
       Row{R"({"hidden_size":"4096","num_hidden_layers":2,"num_attention_heads":2,)"
           R"("vocab_size":100})",
           "hidden_size"},
       Row{R"({"hidden_size":4096,"num_hidden_layers":2,"num_attention_heads":0,"vocab_size":100})",
           "num_attention_heads"},
       Row{R"({"hidden_size":1048576,"num_hidden_layers":4096,"num_attention_heads":64,)"
           R"("vocab_size":100000000,"intermediate_size":16000000})",
           "any machine"},
       Row{R"({"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":2,"vocab_size":100,)"
           R"("num_experts":8})",
           "num_experts_per_tok"},
       Row{R"({"hidden_size":64,"num_hidden_layers":3,"num_attention_heads":2,"vocab_size":100,)"
           R"("hybrid_override_pattern":"M*"})",
           "pattern"}}) {
    auto s = read_model_config(text);
    ASSERT_FALSE(s) << text;
    EXPECT_NE(s.error().message.find(says), std::string::npos) << s.error().message;
  }
  std::string deep(100000, '[');
  EXPECT_FALSE(read_model_config(deep));
  EXPECT_FALSE(read_model_config(std::string(5 << 20, ' ')));
}

TEST(HostileConfig, MoreKeyThanQueryHeadsAreNoModel) {
  EXPECT_FALSE(read_model_config(
      R"({"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"vocab_size":128256,)"
      R"("num_attention_heads":32,"num_key_value_heads":64,"num_hidden_layers":32})",
      {}, "m"));
}

TEST(HostileConfig, TruncationAnywhereIsAnErrorAndNeverACrash) {
  auto text =
      config(R"("model_type":"llama","hidden_size":4096,"num_hidden_layers":32,)"
             R"("num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336)");
  for (std::size_t n = 0; n < text.size(); ++n)
    EXPECT_FALSE(read_model_config(std::string_view(text).substr(0, n))) << n;
}

TEST(ModelShape, ModelsWithoutTokensToGenerateAreRefused) {
  for (const char* type : {"bert", "roberta", "xlm-roberta", "modernbert"}) {
    const auto read = [&](const char* more) {
      return read_model_config(
          fmt::format(R"({{"model_type":"{}","hidden_size":1024,"intermediate_size":4096,)"
                      R"("num_attention_heads":16,"num_hidden_layers":24,"vocab_size":30522{}}})",
                      type, more),
          {}, "embedder");
    };
    const auto encoder = read("");
    ASSERT_FALSE(encoder) << type;
    EXPECT_NE(encoder.error().message.find("embeddings"), std::string::npos);
    EXPECT_TRUE(read(R"(,"is_decoder":true)")) << type;
  }
}

TEST(ModelShape, AStoredTypeThatIsNotKnownIsSaidSo) {
  const auto notes = [](const char* dtype) {
    const auto s = read_model_config(
        fmt::format(R"({{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,)"
                    R"("num_attention_heads":32,"num_hidden_layers":32,"vocab_size":128256,)"
                    R"("torch_dtype":"{}"}})",
                    dtype),
        {}, "m");
    return s ? join(s->notes, "\n") : s.error().message;
  };
  EXPECT_EQ(notes("bfloat16"), "");
  EXPECT_NE(notes("float7").find("float7"), std::string::npos);
}

TEST(ModelShape, UnknownArchitecturesAreSaidSo) {
  auto s = read_model_config(
      config(R"("model_type":"brand_new","hidden_size":4096,"num_hidden_layers":4,)"
             R"("num_attention_heads":32)"));
  ASSERT_TRUE(s);
  ASSERT_FALSE(s->notes.empty());
  EXPECT_NE(s->notes[0].find("unknown model type \"brand_new\""), std::string::npos);
  auto q = read_model_config(
      config(R"("model_type":"llama","hidden_size":4096,"num_hidden_layers":4,)"
             R"("num_attention_heads":32,"quantization_config":{"quant_method":"mystery"})"));
  ASSERT_TRUE(q);
  ASSERT_FALSE(q->notes.empty());
  EXPECT_NE(q->notes[0].find("taken as not quantized"), std::string::npos);
  EXPECT_FALSE(find_model("no/such-model", "/nonexistent"));
}

}  // namespace
}  // namespace billow::advise
