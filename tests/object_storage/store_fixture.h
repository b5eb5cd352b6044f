// A strict store, a clock that nobody waits for, and the file system that reaches it: what tests of this room
// begin with.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "object_storage/strict_s3.h"
#include "support/manual_clock.h"
#include "support/memory_file_system.h"
#include "trainctl/base/error.h"
#include "trainctl/object_storage/routed_file_system.h"

namespace trainctl::test {

struct StoreFixture {
    explicit StoreFixture(StrictS3Options options = {}) : store(clock, options) {
        settings.endpoint = store.endpoint();
        settings.part_bytes = 128;
        settings.parallel_parts = 3;
        settings.listed_keys = 3;
        settings.retry_for_s = 60.0;
        settings.answer_timeout_s = 30.0;
        reconnect();
    }

    // Another process: nothing is remembered.
    void reconnect() {
        files = std::make_unique<RoutedFileSystem>(local, clock, environment());
        files->configure(settings);
    }
    [[nodiscard]] Environment environment() const {
        return [this](const char* name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            if (found == variables.end()) return std::nullopt;
            return found->second;
        };
    }
    // Publishes `text` in two writes.
    void publish(const std::string& path, std::string_view text, Existing existing = Existing::Refuse) const {
        const auto file = files->publish(path, existing);
        file->write(std::as_bytes(std::span(text.substr(0, text.size() / 3))));
        file->write(std::as_bytes(std::span(text.substr(text.size() / 3))));
        file->close();
    }

    std::map<std::string, std::string> variables{{"AWS_ACCESS_KEY_ID", first_access_key},
                                                 {"AWS_SECRET_ACCESS_KEY", first_secret},
                                                 {"AWS_SESSION_TOKEN", first_token}};
    ManualClock clock;
    MemoryFileSystem local;
    ObjectStorageSettings settings;
    StrictS3 store;
    std::unique_ptr<RoutedFileSystem> files;
};

// Exit and text of what `action` throws; Ok and "" if nothing.
struct Thrown {
    Exit code = Exit::Ok;
    std::string text;
};
template <class Action>
Thrown thrown_by(Action action) {
    try {
        action();
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
    return {};
}

// `size` bytes that tell their position.
inline std::string pattern(std::size_t size) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) text += static_cast<char>(i * 7 + i / 251);
    return text;
}

}  // namespace trainctl::test
