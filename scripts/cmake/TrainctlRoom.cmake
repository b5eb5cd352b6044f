# The functions that rooms and their tests are declared with.

# Every room is one static library `trainctl_<room>` made of src/<room>/*.cpp and include/trainctl/<room>.
#
#   trainctl_room(<room> SOURCES a.cpp ... [ROOMS lower rooms it uses] [PACKAGES private libraries])
#
# ROOMS are public (their headers may appear in ours); PACKAGES stay inside the room's sources.
function(trainctl_room room)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;ROOMS;PACKAGES")
    add_library(trainctl_${room} STATIC ${arg_SOURCES})
    add_library(trainctl::${room} ALIAS trainctl_${room})
    target_include_directories(trainctl_${room} PUBLIC ${PROJECT_SOURCE_DIR}/include
                                                PRIVATE ${PROJECT_SOURCE_DIR}/src)
    trainctl_compile_settings(trainctl_${room})
    if(TRAINCTL_FAST_BUILD)
        # Four sources, in the order given, are one unit, because most of a small source's time goes into headers that
        # its neighbours read too. So a room uses a name in an unnamed namespace once, and the sources that include the
        # same heavy library (CLI11, JSON) stand first, together. GCC takes the sources of a unit for headers.
        set_target_properties(trainctl_${room} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 4)
        target_compile_options(trainctl_${room} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    endif()
    list(TRANSFORM arg_ROOMS PREPEND trainctl_)
    target_link_libraries(trainctl_${room} PUBLIC ${arg_ROOMS} Threads::Threads PRIVATE ${arg_PACKAGES})
endfunction()

# One test program per room: tests/<room>/*.cpp, run by ctest as one test with the room's name.
#
#   trainctl_test(<room> SOURCES a.cpp ... ROOMS rooms under test [PACKAGES ...] [LABELS ...]
#                 [THREADS tag] [CAMPAIGN tag] [TIMEOUT seconds])
#
# Cases that carry the Catch2 tag given as THREADS (for example [threads]) become a test of their own,
# <room>.threads with the label `threads`, which the ThreadSanitizer preset runs. Cases with the CAMPAIGN tag become
# <room>.campaign with the label `campaign`: long tests that the default command leaves out.
# Every test also has its room as a label, and `sanitize` (run by the asan preset) unless the room is listed in
# TRAINCTL_NOT_SANITIZED below.
function(trainctl_test room)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "THREADS;CAMPAIGN;TIMEOUT" "SOURCES;ROOMS;PACKAGES;LABELS")
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 300)
    endif()
    set(program test_${room})
    add_executable(${program} ${arg_SOURCES})
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
    trainctl_compile_settings(${program})
    trainctl_precompiled_test_headers(${program})
    list(TRANSFORM arg_ROOMS PREPEND trainctl_)
    target_link_libraries(${program} PRIVATE ${arg_ROOMS} ${arg_PACKAGES} Catch2::Catch2WithMain)

    set(labels ${room} ${arg_LABELS})
    if(NOT room IN_LIST TRAINCTL_NOT_SANITIZED)
        list(APPEND labels sanitize)
        trainctl_group(sanitize_tests ${program})
    endif()
    if("threads" IN_LIST arg_LABELS)
        trainctl_group(threads_tests ${program})
    endif()

    # Catch2 joins adjacent filters with "and".
    set(not_threads "")
    set(not_campaign "")
    if(arg_CAMPAIGN)
        set(not_campaign "~${arg_CAMPAIGN}")
        trainctl_test_entry(${room}.campaign ${program} "${arg_CAMPAIGN}" campaign ${room})
        set_tests_properties(${room}.campaign PROPERTIES TIMEOUT 14400)
    endif()
    if(arg_THREADS)
        set(not_threads "~${arg_THREADS}")
        trainctl_group(threads_tests ${program})
        trainctl_test_entry(${room}.threads ${program} "${arg_THREADS}${not_campaign}" threads ${labels})
    endif()
    trainctl_test_entry(${room} ${program} "${not_threads}${not_campaign}" ${labels})
endfunction()

# Rooms whose tests train whole models: too slow under a sanitizer, and made of parts that are checked.
set(TRAINCTL_NOT_SANITIZED train layouts bench cli)

# A parser that must survive any bytes: tests/fuzz/<name>.cpp defines LLVMFuzzerTestOneInput.
#
#   trainctl_fuzz(<name> SOURCES <name>.cpp ROOMS rooms it uses [PACKAGES ...])
#
# With the fuzz preset (TRAINCTL_FUZZ) it becomes the libFuzzer program fuzz/fuzz_<name>. Otherwise it becomes the test
# fuzz.<name>, which feeds it every file of tests/fuzz/corpus/<name>: found once, checked for ever, by any compiler.
function(trainctl_fuzz name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;ROOMS;PACKAGES")
    set(program fuzz_${name})
    add_executable(${program} ${arg_SOURCES})
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
    trainctl_compile_settings(${program})
    list(TRANSFORM arg_ROOMS PREPEND trainctl_)
    target_link_libraries(${program} PRIVATE ${arg_ROOMS} ${arg_PACKAGES})
    if(TRAINCTL_FUZZ)
        target_link_options(${program} PRIVATE -fsanitize=fuzzer)
        trainctl_group(fuzz_targets ${program})
    else()
        target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cpp)
        trainctl_group(sanitize_tests ${program})
        add_test(NAME fuzz.${name} COMMAND ${program} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
        set_tests_properties(fuzz.${name} PROPERTIES LABELS "fuzz;sanitize" TIMEOUT 300)
    endif()
endfunction()

# Target lone_headers: every header under include/ compiles alone (twice in one unit, so that its guard is checked too),
# with no other include path. The generated units also give clang-tidy a command line for headers.
function(trainctl_lone_headers)
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include
         ${PROJECT_SOURCE_DIR}/include/trainctl/*.h)
    set(units "")
    foreach(header IN LISTS headers)
        set(unit ${PROJECT_BINARY_DIR}/lone_headers/include/${header}.cpp)
        file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${header}\"\n#include \"${header}\"  // NOLINT\n")
        list(APPEND units ${unit})
    endforeach()
    add_library(lone_headers OBJECT EXCLUDE_FROM_ALL ${units})
    target_include_directories(lone_headers PRIVATE ${PROJECT_SOURCE_DIR}/include)
    trainctl_compile_settings(lone_headers)
endfunction()

# Internal: one ctest entry of a test program, run over the cases that `filter` selects. `-w NoTests` makes a filter that
# matches no case fail, so that a misspelt tag cannot pass as an empty test.
function(trainctl_test_entry name program filter)
    add_test(NAME ${name} COMMAND ${program} -w NoTests ${filter})
    # Several ranks share a process here, and processes the cores: spinning threads would only be in each other's way.
    set_tests_properties(${name} PROPERTIES LABELS "${ARGN}" TIMEOUT ${arg_TIMEOUT} ENVIRONMENT GOMP_SPINCOUNT=300)
endfunction()

# Internal: Catch2 and common standard headers, read once for all test programs. -O1, because tests run for seconds.
function(trainctl_precompiled_test_headers program)
    set(settings $<$<CONFIG:Release>:-O1>)
    if(TRAINCTL_FAST_BUILD)
        list(APPEND settings $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # lets ccache see through the header
        if(NOT TARGET trainctl_test_headers)
            add_library(trainctl_test_headers OBJECT ${PROJECT_SOURCE_DIR}/tests/support/precompiled.cpp)
            trainctl_compile_settings(trainctl_test_headers)
            target_compile_options(trainctl_test_headers PRIVATE ${settings})
            target_precompile_headers(trainctl_test_headers PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/catch.h
                <algorithm> <chrono> <functional> <map> <memory> <random> <set> <string> <thread> <vector>)
        endif()
        target_precompile_headers(${program} REUSE_FROM trainctl_test_headers)
    endif()
    target_compile_options(${program} PRIVATE ${settings})
endfunction()

# Internal: adds a program to a target that builds a group of programs.
function(trainctl_group group program)
    if(NOT TARGET ${group})
        add_custom_target(${group})
    endif()
    add_dependencies(${group} ${program})
endfunction()

# Internal: what every target of ours is compiled with. Warnings belong to the presets, optimisation to the build
# type; here is only what correctness or a compiler defect asks for.
function(trainctl_compile_settings target)
    target_compile_features(${target} PUBLIC cxx_std_20)
    # GCC 12 reports an impossible overlap for `"text" + std::string` (its bug 105651).
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
endfunction()
