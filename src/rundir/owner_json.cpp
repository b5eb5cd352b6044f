#include "rundir/owner_json.h"

#include <fmt/format.h>

#include "trainctl/base/text.h"

namespace trainctl {

std::string owner_json(const ProcessIdentity& owner) {
    return fmt::format(R"({{"host": {}, "boot_id": {}, "pid_namespace": {}, "pid": {}, "start_ticks": {}}})",
                       json_quote(owner.host), json_quote(owner.boot_id), json_quote(owner.pid_namespace),
                       owner.pid, owner.start_ticks);
}

ProcessIdentity parse_owner(const nlohmann::json& value, const std::string& where) {
    const JsonObject object(value, where);
    return {object.text("host"), object.text("boot_id"), object.text("pid_namespace"),
            object.integer("pid", 0, INT64_MAX), object.integer("start_ticks", 0, INT64_MAX)};
}

std::string describe_owner(const ProcessIdentity& owner) {
    return fmt::format("host {}, pid {}", owner.host, owner.pid);
}

}  // namespace trainctl
