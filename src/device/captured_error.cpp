#include "trainctl/device/captured_error.h"

#include <new>

namespace trainctl {

std::shared_ptr<const CapturedError> CapturedError::current() {
    try {
        throw;
    } catch (const Error& error) {
        return std::make_shared<CapturedError>(error);
    } catch (const std::bad_alloc&) {
        return std::make_shared<CapturedError>(
            Error(Exit::Resource,
                  "out of host memory; use a smaller micro-batch or fewer ranks on "
                  "this host",
                  Where::here()));
    } catch (const std::exception& error) {
        return std::make_shared<CapturedError>(Error(Exit::Internal, error.what(), Where::here()));
    } catch (...) {
        return std::make_shared<CapturedError>(Error(Exit::Internal, "an unknown exception", Where::here()));
    }
}

}  // namespace trainctl
