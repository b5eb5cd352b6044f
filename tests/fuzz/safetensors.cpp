// Fuzz target: a payload file from anywhere is refused with Exit::BadInput, or its header describes a
// partition of its bytes into tensors of known dtypes.
#include "trainctl/rundir/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "support/memory_file_system.h"
#include "trainctl/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    trainctl::test::MemoryFileSystem files;
    files.put("f.st", std::string(reinterpret_cast<const char*>(data), size));
    try {
        const trainctl::SafetensorsHeader header = trainctl::read_safetensors_header(files, "f.st");
        std::uint64_t reached = 0;
        for (const trainctl::SafetensorsEntry& entry : header.tensors) {
            if (entry.begin != reached || entry.end < entry.begin) std::abort();
            if (!trainctl::safetensors_dtype_bits(entry.dtype)) std::abort();
            reached = entry.end;
        }
        if (header.data_offset + reached != size) std::abort();
    } catch (const trainctl::Error& error) {
        if (error.code() != trainctl::Exit::BadInput) std::abort();
    }
    return 0;
}
