# Run at build time (cmake -P): writes OUTPUT with the version, git revision and build settings, and touches it
# only when something changed, so that a commit recompiles one small file.
set(revision "unknown")
find_program(git_program git)
if(git_program)
    execute_process(COMMAND ${git_program} -C ${SOURCE_DIR} rev-parse --short=12 HEAD
                    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed)
        set(revision "${head}")
        execute_process(COMMAND ${git_program} -C ${SOURCE_DIR} status --porcelain --untracked-files=no
                        OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        if(NOT changes STREQUAL "")
            string(APPEND revision "-dirty")
        endif()
    endif()
endif()
string(STRIP "${FLAGS}" flags)
string(REPLACE "\\" "\\\\" flags "${flags}")
string(REPLACE "\"" "\\\"" flags "${flags}")
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[// Generated; do not edit.
#pragma once

namespace trainctl::generated {
constexpr const char* version = "@VERSION@";
constexpr const char* revision = "@revision@";
constexpr const char* build_type = "@BUILD_TYPE@";
constexpr const char* compiler = "@COMPILER@";
constexpr const char* flags = "@flags@";
}  // namespace trainctl::generated
]])
