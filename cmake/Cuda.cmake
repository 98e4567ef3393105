# The CUDA language, with the newest architecture we target unless the caller says otherwise.
if(NOT TERRACE_NVCC)
  message(FATAL_ERROR "TERRACE_WITH_CUDA is on, but nvcc was not found. Put it on the PATH (the CUDA Toolkit is never "
          "installed by this project), or configure with -DTERRACE_WITH_CUDA=OFF")
endif()
set(CMAKE_CUDA_COMPILER "${TERRACE_NVCC}" CACHE FILEPATH "")
set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "Compute capabilities to compile for")
if(CCACHE AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE}")
endif()
enable_language(CUDA)
# nvcc has C++20 since CUDA 12, which CMake 3.25 does not know.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit REQUIRED)
