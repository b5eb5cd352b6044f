# Whether this build has the CUDA backend. TRAINCTL_CUDA: AUTO takes it if the toolkit is there, ON insists, OFF leaves it
# out. Sets TRAINCTL_WITH_CUDA; with it, the language CUDA and the package CUDAToolkit.
set(TRAINCTL_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
set_property(CACHE TRAINCTL_CUDA PROPERTY STRINGS AUTO ON OFF)

set(TRAINCTL_WITH_CUDA OFF)
if(NOT TRAINCTL_CUDA STREQUAL "OFF")
    include(CheckLanguage)
    check_language(CUDA)
    find_package(CUDAToolkit 12.4 QUIET)
    find_path(TRAINCTL_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(TRAINCTL_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
    if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND AND TRAINCTL_NCCL_INCLUDE AND TRAINCTL_NCCL_LIBRARY)
        set(TRAINCTL_WITH_CUDA ON)
        # Machine code for the GPUs that the kernels are tuned for, and a portable form for newer ones.
        if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
            set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
        endif()
        enable_language(CUDA)
    elseif(TRAINCTL_CUDA STREQUAL "ON")
        message(FATAL_ERROR "TRAINCTL_CUDA=ON: expected nvcc, the CUDA toolkit 12.4 or newer and NCCL, found compiler "
                            "'${CMAKE_CUDA_COMPILER}', toolkit '${CUDAToolkit_VERSION}', NCCL "
                            "'${TRAINCTL_NCCL_LIBRARY}'; put nvcc on PATH and nccl.h beside the toolkit's headers, or "
                            "configure with -DTRAINCTL_CUDA=OFF")
    endif()
endif()
message(STATUS "CUDA backend: ${TRAINCTL_WITH_CUDA}")

# What every target with .cu files is compiled with. Every sum is the same in every build: products and sums are fused
# only where a source says so. CMake 3.25 does not know nvcc's C++20.
function(trainctl_cuda_compile_settings target)
    target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr --fmad=false -Werror=all-warnings -Xptxas=-v>)
    set_target_properties(${target} PROPERTIES
        CUDA_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/scripts/cmake/keep_ptxas_report.sh)
endfunction()
