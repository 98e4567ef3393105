// Reading config.json: real ones, and every mistake with its message.
#include "engine/config.hpp"

#include <gmock/gmock.h>

#include "engine/checkpoints.hpp"
#include "engine/tokenizer/load_error.hpp"
#include "support/shared_data.hpp"

namespace terrace::engine {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  ModelConfig read(const json& object) {
    test::write_file(directory_ / "config.json", object.dump());
    return read_config(directory_.path());
  }
  // What reading says about the small configuration with `field` set to `value`.
  std::string error(const char* field, const json& value) {
    json object = plain_;
    object[field] = value;
    return test::error_of<LoadError>([&] { read(object); });
  }
  ModelConfig with(const char* field, const json& value) {
    json object = plain_;
    object[field] = value;
    return read(object);
  }

  test::TemporaryDirectory directory_;
  json plain_ = test::config_json(test::odd_config());
};

TEST_F(ConfigTest, ReadsEveryField) {
  const ModelConfig config = read(plain_);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.hidden_size, 60U);
  EXPECT_EQ(config.intermediate_size, 172U);
  EXPECT_EQ(config.layers, 2U);
  EXPECT_EQ(config.heads, 6U);
  EXPECT_EQ(config.kv_heads, 2U);
  EXPECT_EQ(config.head_dim, 10U);
  EXPECT_EQ(config.vocab_size, 300U);
  EXPECT_EQ(config.max_positions, 256U);
  EXPECT_FLOAT_EQ(config.rms_norm_eps, 1e-5F);
  EXPECT_EQ(config.bos_token, 1U);
  EXPECT_THAT(config.eos_tokens, ElementsAre(2));
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias || config.qk_norm);
}

TEST_F(ConfigTest, DefaultsAreThoseOfHuggingFace) {
  json object = plain_;
  object.erase("head_dim");
  object.erase("num_key_value_heads");
  object.erase("rope_theta");
  object["rope_scaling"] = nullptr;
  const ModelConfig config = read(object);
  EXPECT_EQ(config.head_dim, 10U);  // hidden / heads
  EXPECT_EQ(config.kv_heads, 6U);   // as many as heads
  EXPECT_EQ(config.rope_theta, 10000);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::none);
}

TEST_F(ConfigTest, StopTokensAreThoseOfBothFiles) {
  test::write_file(directory_ / "generation_config.json", R"({"eos_token_id": [2, 7, 9]})");
  EXPECT_THAT(with("eos_token_id", {2, 3}).eos_tokens, ElementsAre(2, 3, 7, 9));
}

TEST_F(ConfigTest, ArchitecturesDecideBiasesAndNorms) {
  const ModelConfig qwen2 = with("architectures", {"Qwen2ForCausalLM"});
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias && !qwen2.qk_norm);
  const ModelConfig qwen3 = with("architectures", {"Qwen3ForCausalLM"});
  EXPECT_TRUE(!qwen3.qkv_bias && qwen3.qk_norm);
  const ModelConfig biased = with("attention_bias", true);
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && !biased.mlp_bias);
  EXPECT_TRUE(with("mlp_bias", true).mlp_bias);
  json object = plain_;
  object.erase("architectures");
  object["model_type"] = "mistral";
  EXPECT_EQ(read(object).architecture, "MistralForCausalLM");
}

TEST_F(ConfigTest, RopeScalingInBothSpellings) {
  const json llama3{{"rope_type", "llama3"},
                    {"factor", 8.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192}};
  EXPECT_EQ(with("rope_scaling", llama3).rope_scaling.kind, RopeScaling::Kind::llama3);
  const auto linear = with("rope_scaling", {{"type", "linear"}, {"factor", 2.0}});
  EXPECT_EQ(linear.rope_scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(linear.rope_scaling.factor, 2.0);
  const auto newer = with("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}});
  EXPECT_EQ(newer.rope_theta, 5e5);
}

TEST_F(ConfigTest, RealConfigurations) {
  TERRACE_REQUIRE_SHARED("configs/hf");
  const auto load = [&](const char* name) {
    const auto path = test::shared_data() / "configs/hf" / name;
    EXPECT_TRUE(std::filesystem::exists(path)) << path;
    test::write_file(directory_ / "config.json", test::read_file(path));
    return read_config(directory_.path());
  };
  const ModelConfig llama = load("meta-llama--Meta-Llama-3.1-70B.config.json");
  EXPECT_EQ(llama.head_dim, 128U);
  EXPECT_EQ(llama.kv_heads, 8U);
  EXPECT_EQ(llama.rope_scaling.kind, RopeScaling::Kind::llama3);
  const ModelConfig qwen3 = load("Qwen--Qwen3-0.6B.config.json");
  EXPECT_TRUE(qwen3.qk_norm && qwen3.tied_embeddings);
  EXPECT_EQ(qwen3.head_dim, 128U);
  EXPECT_TRUE(load("qwen2.5-7b-instruct.config.json").qkv_bias);
  EXPECT_EQ(load("mistral-nemo-instruct-2407.config.json").head_dim, 128U);
  EXPECT_EQ(load("TinyLlama--TinyLlama_v1.1.config.json").kv_heads, 4U);
  for (const char* other : {"deepseek-ai--DeepSeek-V3.config.json", "zai-org--GLM-5.config.json",
                            "google--gemma-4-26B-A4B.config.json",
                            "openai--gpt-oss-20b.config.json", "Qwen--Qwen3-30B-A3B.config.json"}) {
    EXPECT_THAT(test::error_of<LoadError>([&] { load(other); }), HasSubstr("architectures"))
        << other;
  }
}

TEST_F(ConfigTest, ErrorsNameFileFieldAndAdvice) {
  const std::string file = (directory_ / "config.json").string();
  EXPECT_THAT(error("hidden_size", nullptr),
              AllOf(HasSubstr(file), HasSubstr("\"hidden_size\" is missing")));
  EXPECT_THAT(error("hidden_size", "60"),
              HasSubstr("field \"hidden_size\" is \"60\"; it must be an integer"));
  EXPECT_THAT(error("vocab_size", -1), HasSubstr("integer from 1"));
  EXPECT_THAT(error("num_hidden_layers", 1e18), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(error("num_key_value_heads", 4), HasSubstr("a divisor of \"num_attention_heads\""));
  EXPECT_THAT(error("head_dim", 9), HasSubstr("even"));
  EXPECT_THAT(error("rms_norm_eps", 0), HasSubstr("a positive number"));
  EXPECT_THAT(error("tie_word_embeddings", 1), HasSubstr("true or false"));
  EXPECT_THAT(error("eos_token_id", {2, -3}), HasSubstr("a token id"));
  EXPECT_THAT(error("architectures", {"GPT2LMHeadModel"}),
              HasSubstr("use a model of LlamaForCausalLM"));
  EXPECT_THAT(error("architectures", json::array()), HasSubstr("a list"));
  EXPECT_THAT(error("hidden_act", "gelu"), HasSubstr("only \"silu\""));
  EXPECT_THAT(error("quantization_config", {{"bits", 4}}), HasSubstr("unquantized"));
  EXPECT_THAT(error("sliding_window", 128), HasSubstr("full attention"));
  EXPECT_EQ(with("sliding_window", 256).max_positions, 256U);  // never takes effect
  EXPECT_THAT(error("layer_types", {"full_attention", "sliding_attention"}),
              HasSubstr("layer_types"));
  EXPECT_THAT(error("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}), HasSubstr("\"yarn\""));
  EXPECT_THAT(error("rope_scaling", {{"rope_type", "linear"}}), HasSubstr("\"factor\" is missing"));
  EXPECT_THAT(error("rope_scaling", 3), HasSubstr("an object"));
  EXPECT_THAT(error("partial_rotary_factor", 0.5), HasSubstr("full rotation"));
}

TEST_F(ConfigTest, FilesThatAreNoConfiguration) {
  EXPECT_THAT(test::error_of<LoadError>([&] { read_config(directory_.path()); }),
              AllOf(HasSubstr("config.json"), HasSubstr("cannot be opened")));
  test::write_file(directory_ / "config.json", "{\"hidden_size\": ");
  EXPECT_THAT(test::error_of<LoadError>([&] { read_config(directory_.path()); }),
              HasSubstr("is not a JSON object"));
}

TEST_F(ConfigTest, AttentionDigestChangesWithEveryFieldItNames) {
  const Digest base = read(plain_).attention_digest();
  EXPECT_EQ(read(plain_).attention_digest(), base);
  const json llama3{{"rope_type", "llama3"},
                    {"factor", 8.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192}};
  json other3 = llama3;
  other3["low_freq_factor"] = 1.5;
  EXPECT_NE(with("rope_scaling", llama3).attention_digest(),
            with("rope_scaling", other3).attention_digest());
  const std::vector<std::pair<const char*, json>> changes{
      {"rope_theta", 10001},    {"rms_norm_eps", 1e-6},
      {"head_dim", 12},         {"num_key_value_heads", 3},
      {"num_hidden_layers", 3}, {"hidden_size", 120},
      {"rope_scaling", llama3}, {"architectures", {"Qwen3ForCausalLM"}}};
  for (const auto& [field, value] : changes) {
    EXPECT_NE(with(field, value).attention_digest(), base) << field;
  }
  EXPECT_EQ(with("vocab_size", 301).attention_digest(), base);  // not a matter of attention
}

}  // namespace
}  // namespace terrace::engine
