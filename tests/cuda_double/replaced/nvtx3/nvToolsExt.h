// The functions of NVTX that the backend uses; bodies in profiler.cpp. The toolkit's header holds bodies that
// look for a tool.
#pragma once

extern "C" {
int nvtxRangePushA(const char* message);
int nvtxRangePop();
}
