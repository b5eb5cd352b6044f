# oneDNN with its CPU engine only. The config file that Debian ships also demands the OpenCL headers (for a GPU
# engine that trainctl never opens), so the library is looked up directly. Defines DNNL::dnnl.
find_path(dnnl_INCLUDE_DIR NAMES oneapi/dnnl/dnnl.hpp)
find_library(dnnl_LIBRARY NAMES dnnl)
mark_as_advanced(dnnl_INCLUDE_DIR dnnl_LIBRARY)

if(dnnl_INCLUDE_DIR)
    file(STRINGS ${dnnl_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h dnnl_version_lines REGEX "define DNNL_VERSION_")
    foreach(part IN ITEMS MAJOR MINOR PATCH)
        string(REGEX MATCH "DNNL_VERSION_${part} ([0-9]+)" ignored "${dnnl_version_lines}")
        set(dnnl_version_${part} ${CMAKE_MATCH_1})
    endforeach()
    set(dnnl_VERSION ${dnnl_version_MAJOR}.${dnnl_version_MINOR}.${dnnl_version_PATCH})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(dnnl REQUIRED_VARS dnnl_LIBRARY dnnl_INCLUDE_DIR VERSION_VAR dnnl_VERSION)

if(dnnl_FOUND AND NOT TARGET DNNL::dnnl)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${dnnl_LIBRARY}
                                                INTERFACE_INCLUDE_DIRECTORIES ${dnnl_INCLUDE_DIR})
endif()
