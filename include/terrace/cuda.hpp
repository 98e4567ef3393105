// CUDA as the device. The only public header that includes CUDA; it is there when the library was
// built with TERRACE_WITH_CUDA.
//
// Thread rule: as CopyEngine, any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "terrace/io.hpp"

namespace terrace {

// Copies on streams of `device` that do not synchronise with the default stream. Every call leaves
// the calling thread's current device as it was and no pending CUDA error behind, and keeps a graph
// capture in progress valid. Pin host memory before copying: CUDA copies pageable memory
// synchronously. Returns: the engine; unsupported (no device, no driver); invalid_argument (no such
// device); out_of_memory.
Result<std::unique_ptr<CopyEngine>> make_cuda_copy_engine(int device);

// Lets points be recorded on, and waits enqueued to, a stream of the caller's; destroy_stream()
// then forgets it. REQUIRES: `engine` is of make_cuda_copy_engine(); `stream` belongs to its device
// and outlives the id. Returns: the id; invalid_argument (an engine of another kind);
// out_of_memory.
Result<StreamId> adopt_stream(CopyEngine& engine, cudaStream_t stream);

}  // namespace terrace
