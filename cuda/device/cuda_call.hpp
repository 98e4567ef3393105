// How a call into the CUDA runtime is made: what it must leave unchanged for the host program, and
// what its error means.
//
// Must never leave an error of ours on CUDA's record. Used by everything below cuda/.
// Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include "terrace/result.hpp"

namespace terrace::internal {

inline Code to_code(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return Code::out_of_memory;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorHostMemoryAlreadyRegistered:
      return Code::invalid_argument;
    case cudaErrorNotSupported:
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
      return Code::unsupported;
    default:
      return Code::io_error;
  }
}

// Takes the error off CUDA's record, so that the host program's next check does not find ours.
inline unexpected cuda_failure(cudaError_t error) {
  (void)cudaGetLastError();
  return fail(to_code(error), cudaGetErrorString(error));
}

// For the time of one call: our device is current, and calls that a graph capture in progress
// forbids to the process (event queries, registration) are allowed to this thread; they do not
// touch the captured stream.
class CallScope {
 public:
  explicit CallScope(int device) {
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
    (void)cudaGetDevice(&before_);
    changed_ = before_ != device && cudaSetDevice(device) == cudaSuccess;
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope() {
    if (changed_) (void)cudaSetDevice(before_);
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace terrace::internal
