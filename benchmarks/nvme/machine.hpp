// The machine that figures are of.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace terrace::bench {

// CPU model, cores, kernel, load, and the file system of `path`.
nlohmann::json describe_machine(const std::string& path);
std::string utc_now();  // "2026-11-30T12:00:00Z"

}  // namespace terrace::bench
