// `trainctl ckpt pin|unpin`.
#include <fmt/format.h>

#include "checkpoint/find_checkpoint.h"
#include "trainctl/base/error.h"
#include "trainctl/base/text.h"
#include "trainctl/checkpoint/run_commands.h"
#include "trainctl/checkpoint/suspicion.h"

namespace trainctl {

CommandResult checkpoint_pin(FileSystem& files, const std::string& path, std::optional<std::int64_t> step,
                             PinAction action, OutputFormat form) {
    const FoundCheckpoint found = find_checkpoint(files, path, step);
    const bool pin = action == PinAction::Pin;
    const bool before = is_pinned(files, found.path);
    if (!pin) {
        unpin_checkpoint(files, found.path);
    } else if (!pin_checkpoint(files, found.path)) {
        fail(
            Exit::BadInput,
            fmt::format("{} was removed at this moment (its COMMIT is gone): nothing is pinned", found.path));
    }
    const std::string text =
        fmt::format("{}: step {} {}{}\n", found.path, found.committed.manifest.step,
                    before == pin ? "was already " : "is now ",
                    pin ? "pinned: retention neither removes nor counts it" : "not pinned");
    return {Exit::Ok,
            in_format(form, text,
                      fmt::format(R"({{"path":{},"step":{},"pinned":{}}})", json_quote(found.path),
                                  found.committed.manifest.step, pin)),
            ""};
}

}  // namespace trainctl
