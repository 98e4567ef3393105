// The CUDA copy engine under the contract of all copy engines; skipped where there is no GPU.
#include "io/copy_engine_contract.hpp"
#include "terrace/cuda.hpp"

namespace terrace::test {
namespace {

std::unique_ptr<CopyEngine> first_device() {
  Result<std::unique_ptr<CopyEngine>> engine = make_cuda_copy_engine(0);
  return engine ? *std::move(engine) : nullptr;
}

INSTANTIATE_TEST_SUITE_P(Cuda, CopyEngineContract,
                         testing::Values(CopyEngineCase{"device0", &first_device}), case_name);

// I28: what fails leaves no error on CUDA's record.
TEST(CudaCopyEngine, AnAbsentDeviceIsAnErrorAndLeavesNoneBehind) {
  const cudaError_t before = cudaPeekAtLastError();  // without a driver, never success
  const auto engine = make_cuda_copy_engine(4096);
  ASSERT_FALSE(engine);
  EXPECT_TRUE(engine.error().code == Code::unsupported ||
              engine.error().code == Code::invalid_argument);
  EXPECT_EQ(cudaPeekAtLastError(), before);
}

TEST(CudaCopyEngine, AdoptsStreamsOfItsOwnKindOnly) {
  const auto host = make_host_copy_engine();
  EXPECT_EQ(adopt_stream(*host, nullptr).error().code, Code::invalid_argument);
}

TEST(CudaCopyEngine, AFailedRegistrationLeavesNoErrorBehind) {
  const auto engine = first_device();
  if (engine == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
  alignas(4096) static std::byte memory[8192];
  ASSERT_TRUE(engine->pin(memory, sizeof(memory)));
  EXPECT_FALSE(engine->pin(memory, sizeof(memory)));
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  engine->unpin(memory);
  EXPECT_TRUE(engine->pin(memory, sizeof(memory)));
}

TEST(CudaCopyEngine, AnAdoptedStreamIsOrderedLikeAnyOther) {
  const auto engine = first_device();
  if (engine == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
  cudaStream_t handle = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess);
  const StreamId adopted = adopt_stream(*engine, handle).value();
  const StreamPoint point = engine->record(adopted).value();
  EXPECT_EQ(engine->synchronize(point), PointState::passed);
  engine->destroy_stream(adopted);
  EXPECT_EQ(cudaStreamDestroy(handle), cudaSuccess) << "an adopted stream stays its owner's";
}

}  // namespace
}  // namespace terrace::test
